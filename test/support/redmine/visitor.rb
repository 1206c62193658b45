# frozen_string_literal: true

# A logged-in browser: cookies, and forms with the tokens of their pages. All responses have the same
# Host, whatever the server's port, so that pages of two servers can be compared.

require "cgi"
require "uri"
require "support/clock"
require "support/connection"

module Redmine
  class Visitor
    HOST = "redmine.example"
    # Seconds without a request after which a new connection is opened. Puma closes connections after 20.
    PATIENCE = 5

    def initialize(address)
      @address = address
      @cookies = {}
    end

    # Logs in as the administrator; returns the response to the form.
    def log_in(login = "admin", password = "admin-secret")
      post_form("/login", "/login", "username" => login, "password" => password)
    end

    def log_out
      post_form("/", "/logout")
    end

    def get(path, headers = {})
      request("GET", path, headers)
    end

    # Posts a form's fields, with the token of the page that has the form.
    def post_form(page, action, fields = {})
      post(action, { "authenticity_token" => token(get(page)) }.merge(fields))
    end

    def post(path, fields, headers = {})
      request("POST", path, { "Content-Type" => "application/x-www-form-urlencoded" }.merge(headers), URI.encode_www_form(fields))
    end

    # files: field name => [file name, type, content].
    def post_multipart(page, action, fields, files)
      mark = "----firebrick"
      fields = { "authenticity_token" => token(get(page)) }.merge(fields)
      parts = fields.map { |name, value| "--#{mark}\r\nContent-Disposition: form-data; name=\"#{name}\"\r\n\r\n#{value}\r\n".b }
      parts += files.map do |name, (file, type, content)|
        "--#{mark}\r\nContent-Disposition: form-data; name=\"#{name}\"; filename=\"#{file}\"\r\nContent-Type: #{type}\r\n\r\n".b + content.b + "\r\n"
      end
      request("POST", action, { "Content-Type" => "multipart/form-data; boundary=#{mark}" }, "#{parts.join}--#{mark}--\r\n".b)
    end

    # Sends a file as a page's script does.
    def upload(page, action, content)
      request("POST", action, { "Content-Type" => "application/octet-stream", "X-Requested-With" => "XMLHttpRequest", "X-CSRF-Token" => token(get(page)) }, content)
    end

    # Returns the token of a page's forms.
    def token(page)
      CGI.unescapeHTML(page.body[/<meta name="csrf-token" content="([^"]+)"/, 1] || raise("no token in:\n#{page.raw_head}#{page.body[0, 2000]}"))
    end

    def request(method, path, headers = {}, body = nil)
      fields = { "Host" => HOST, "Accept" => "text/html,*/*;q=0.8", "Accept-Language" => "en" }
      fields["Cookie"] = @cookies.map { |name, value| "#{name}=#{value}" }.join("; ") unless @cookies.empty?
      fields["Content-Length"] = body.bytesize if body
      head = fields.merge(headers).map { |name, value| "#{name}: #{value}\r\n" }.join
      remember(send_request(method, "#{method} #{escape(path)} HTTP/1.1\r\n#{head}\r\n".b + body.to_s.b))
    end

    def close
      @connection&.close
      @connection = nil
    end

    private

    # Uses the open connection, unless the server may have closed it.
    def send_request(method, bytes)
      close if @last && Clock.now - @last > PATIENCE
      @connection ||= Connection.new(@address, deadline: 60)
      response = @connection.write(bytes).read_response(method)
      @last = Clock.now
      close if response.connection.include?("close")
      response
    end

    def remember(response)
      response.all("set-cookie").each do |cookie|
        name, value = cookie[/\A[^;]+/].split("=", 2)
        @cookies[name] = value
      end
      response
    end

    def escape(path)
      path.gsub(/[\[\]]/) { |bracket| format("%%%02X", bracket.ord) }
    end
  end
end
