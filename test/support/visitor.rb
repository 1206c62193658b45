# frozen_string_literal: true

# A client with cookies, as a browser keeps them for one site, without dates and paths.

require "uri"

class Visitor
  attr_reader :cookies

  # +test+, a Case, sends the requests.
  def initialize(test, server)
    @test = test
    @server = server
    @cookies = {}
  end

  def get(path, headers = {})
    send_request("GET", path, headers)
  end

  # +form+ is a Hash of fields, or a body.
  def post(path, form, headers = {})
    body = form.is_a?(Hash) ? URI.encode_www_form(form) : form
    send_request("POST", path, { "Content-Type" => "application/x-www-form-urlencoded" }.merge(headers), body)
  end

  # Uploads a file as one field of a form, with other fields.
  def upload(path, name, filename, content, fields = {})
    mark = "--------boundary#{rand(1 << 64)}"
    body = fields.map { |key, value| "--#{mark}\r\nContent-Disposition: form-data; name=\"#{key}\"\r\n\r\n#{value}\r\n" }.join.b
    body << "--#{mark}\r\nContent-Disposition: form-data; name=\"#{name}\"; filename=\"#{filename}\"\r\nContent-Type: text/plain\r\n\r\n".b
    body << content.b << "\r\n--#{mark}--\r\n".b
    post(path, body, "Content-Type" => "multipart/form-data; boundary=#{mark}")
  end

  # Returns the token of a page's form.
  def token(path)
    page = get(path).body
    page[/name="authenticity_token" value="([^"]+)"/, 1] or raise Minitest::Assertion, "no token in:\n#{page}"
  end

  def send_request(method, path, headers = {}, body = nil)
    sent = @cookies.empty? ? {} : { "Cookie" => @cookies.map { |pair| pair.join("=") }.join("; ") }
    address = @server.address
    response = @test.ask(@test.request(method, path, { "Host" => address.join(":") }.merge(sent, headers), body), to: @server)
    response.all("set-cookie").each do |line|
      name, value = line.split(";").first.split("=", 2)
      @cookies[name] = value
    end
    response
  end
end
