# Asking other servers, and what is read of their answers: `http_request`, `Net::HTTP`.
module Rt
  class << self
    # Names and values in turn; what has several values is joined by line breaks.
    def pairs(fields)
      flat = []
      return flat if fields.nil?
      fields.each do |name, value|
        value = value.map { |one| one.to_s }.join("\n") if value.is_a?(Array)
        flat << name.to_s << value.to_s
      end
      flat
    end

    # A body as a String: what can be read is read.
    def text_of(body)
      return body if body.nil? || body.is_a?(String)
      body.respond_to?(:read) ? body.read : body.to_s
    end
  end

  # A response that is on its way: joined once, asked as often as one likes.
  class Reply
    def initialize(number)
      @number = number
    end

    # [status, headers, body], or nil when it failed: see `failure`.
    def head
      unless @asked
        @head, @failure = parse(Rt.wait!(:held_head, @number))
        @asked = true
      end
      @head
    end

    # Class and reason of what went wrong.
    attr_reader :failure

    private

    def parse(told)
      return [nil, told] if told.size == 2
      headers = {}
      at = 0
      list = told[1]
      while at < list.size
        name = list[at]
        headers[name] = headers.key?(name) ? "#{headers[name]}\n#{list[at + 1]}" : list[at + 1]
        at += 2
      end
      [[told[0], headers, told[2] ? H2O::HttpInputStream.new(@number) : H2O::HttpInputStream::Empty.new], nil]
    end
  end
end

module H2O
  # A response that breaks off while it is read.
  class HttpError < StandardError; end

  # What `http_request` gives: the request is on its way, `join` waits for the response.
  class HttpRequest
    def initialize(url, method, headers, body, timeout)
      @reply = Rt::Reply.new(Rt.wait!(:fetch, url.to_s, method.to_s, Rt.pairs(headers), Rt.text_of(body), timeout))
    end

    # [status, headers, body]. A server that cannot be reached is a 500 with the reason in `client-warning`.
    def join
      head = @reply.head
      return head if head
      reason = @reply.failure[1]
      [500, { 'client-warning' => reason }, HttpInputStream::Said.new(reason)]
    end

    # For those who raise.
    attr_reader :reply
  end

  # The body of a response: read once, at the reader's pace.
  class HttpInputStream
    def initialize(number)
      @number = number
    end

    def each
      take
      while (part = Rt.wait!(:held_read, @number))
        yield part
      end
      self
    end

    def join
      take
      Rt.wait!(:held_join, @number)
    end
    alias read join

    # The response's number, as long as nothing has been read: such a body goes to the client without Ruby.
    def untouched
      @taken ? nil : @number
    end

    def close
      Rt.call(Rt::HELD_CLOSE, @number)
      nil
    end

    private

    def take
      raise 'http response body is already consumed' if @taken
      @taken = true
    end

    # A body of our own: why there is no response.
    class Said
      def initialize(text)
        @text = text
      end

      def each
        yield join
        self
      end

      def join
        raise 'http response body is already consumed' unless @text
        text = @text
        @text = nil
        text
      end
      alias read join

      def close; end
    end

    # The body of a response that has none.
    class Empty < Said
      def initialize; end

      def each
        self
      end

      def join
        ''
      end
      alias read join
    end
  end
end

module Kernel
  # Asks another server; the request is sent at once. Options: method, headers (or header), body, timeout in seconds.
  def http_request(url, options = nil)
    options ||= {}
    headers = options[:headers] || options[:header]
    H2O::HttpRequest.new(url, options[:method] || 'GET', headers, options[:body], options[:timeout])
  end
end

class SocketError < StandardError; end unless Object.const_defined?(:SocketError)
class EOFError < StandardError; end unless Object.const_defined?(:EOFError)
class SystemCallError < StandardError; end unless Object.const_defined?(:SystemCallError)

module Errno
  class ECONNREFUSED < SystemCallError; end unless const_defined?(:ECONNREFUSED)
  class ECONNRESET < SystemCallError; end unless const_defined?(:ECONNRESET)
  class EHOSTUNREACH < SystemCallError; end unless const_defined?(:EHOSTUNREACH)
end

module OpenSSL
  module SSL
    class SSLError < StandardError; end unless const_defined?(:SSLError)
  end
end

module Net
  class ProtocolError < StandardError; end
  class HTTPBadResponse < StandardError; end
  class OpenTimeout < StandardError; end
  class ReadTimeout < StandardError; end

  # A response that `value` refuses.
  class HTTPExceptions < ProtocolError
    def initialize(message, response)
      super(message)
      @response = response
    end

    attr_reader :response
  end

  # A response: its body has been read.
  class HTTPResponse
    def initialize(status, headers, body)
      @status = status
      @headers = headers
      @body = body
    end

    attr_reader :body
    alias read_body body

    def code
      @status.to_s
    end

    def message
      Rt.call(Rt::REASON, @status)
    end
    alias msg message

    def [](name)
      value = @headers[name.to_s.downcase]
      value && value.split("\n").join(', ')
    end

    def key?(name)
      @headers.key?(name.to_s.downcase)
    end

    def get_fields(name)
      value = @headers[name.to_s.downcase]
      value && value.split("\n")
    end

    def each_header
      @headers.each { |name, _| yield name, self[name] }
    end
    alias each each_header

    def to_hash
      hash = {}
      @headers.each { |name, value| hash[name] = value.split("\n") }
      hash
    end

    def content_type
      type = self['content-type']
      type && type.split(';')[0].strip
    end

    # nil, or an exception unless the response is a success.
    def value
      raise HTTPExceptions.new("#{code} #{message.inspect}", self) unless is_a?(HTTPSuccess)
    end

    def self.of(status)
      case status
      when 200..299 then KINDS[status] || HTTPSuccess
      when 300..399 then KINDS[status] || HTTPRedirection
      when 400..499 then KINDS[status] || HTTPClientError
      when 500..599 then KINDS[status] || HTTPServerError
      else HTTPUnknownResponse
      end
    end
  end

  class HTTPUnknownResponse < HTTPResponse; end
  class HTTPSuccess < HTTPResponse; end
  class HTTPRedirection < HTTPResponse; end
  class HTTPClientError < HTTPResponse; end
  class HTTPServerError < HTTPResponse; end
  class HTTPOK < HTTPSuccess; end
  class HTTPCreated < HTTPSuccess; end
  class HTTPAccepted < HTTPSuccess; end
  class HTTPNoContent < HTTPSuccess; end
  class HTTPMovedPermanently < HTTPRedirection; end
  class HTTPFound < HTTPRedirection; end
  class HTTPSeeOther < HTTPRedirection; end
  class HTTPNotModified < HTTPRedirection; end
  class HTTPBadRequest < HTTPClientError; end
  class HTTPUnauthorized < HTTPClientError; end
  class HTTPForbidden < HTTPClientError; end
  class HTTPNotFound < HTTPClientError; end
  class HTTPTooManyRequests < HTTPClientError; end
  class HTTPInternalServerError < HTTPServerError; end
  class HTTPBadGateway < HTTPServerError; end
  class HTTPServiceUnavailable < HTTPServerError; end
  class HTTPGatewayTimeout < HTTPServerError; end

  HTTPResponse::KINDS = {
    200 => HTTPOK, 201 => HTTPCreated, 202 => HTTPAccepted, 204 => HTTPNoContent, 301 => HTTPMovedPermanently,
    302 => HTTPFound, 303 => HTTPSeeOther, 304 => HTTPNotModified, 400 => HTTPBadRequest, 401 => HTTPUnauthorized,
    403 => HTTPForbidden, 404 => HTTPNotFound, 429 => HTTPTooManyRequests, 500 => HTTPInternalServerError,
    502 => HTTPBadGateway, 503 => HTTPServiceUnavailable, 504 => HTTPGatewayTimeout
  }

  # The calls of Ruby's Net::HTTP that need no connection in the caller's hands. They wait without holding the thread;
  # redirects are not followed.
  class HTTP
    class << self
      # The body, of a URI or of host, path and port.
      def get(uri_or_host, path_or_headers = nil, port = nil)
        get_response(uri_or_host, path_or_headers, port).body
      end

      def get_response(uri_or_host, path_or_headers = nil, port = nil)
        return ask('GET', url_of(uri_or_host, path_or_headers, port), nil, nil) if path_or_headers.is_a?(String)
        ask('GET', uri_or_host.to_s, path_or_headers, nil)
      end

      def post(uri, data, headers = nil)
        ask('POST', uri.to_s, headers, data.to_s)
      end

      def post_form(uri, params)
        ask('POST', uri.to_s, { 'content-type' => 'application/x-www-form-urlencoded' }, form(params))
      end

      def start(address, port = nil, options = nil)
        port, options = nil, port if port.is_a?(Hash)
        http = new(address, port)
        (options || {}).each { |name, value| http.__send__("#{name}=", value) if http.respond_to?("#{name}=") }
        block_given? ? yield(http) : http
      end

      # A response whose body is there; raises what went wrong.
      def ask(method, url, headers, body, timeout = nil)
        reply = H2O::HttpRequest.new(url, method, headers, body, timeout).reply
        head = reply.head
        raise Rt.fault(*reply.failure) unless head
        HTTPResponse.of(head[0]).new(head[0], head[1], head[2].join)
      end

      private

      def url_of(host, path, port)
        "http://#{host}#{port ? ":#{port}" : ''}#{path}"
      end

      def form(params)
        URI.encode_www_form(params)
      end
    end

    def initialize(address, port = nil)
      @address = address
      @port = port
      @use_ssl = port == 443
      @read_timeout = 60
    end

    attr_reader :address, :port
    attr_accessor :use_ssl, :open_timeout, :read_timeout, :write_timeout, :keep_alive_timeout, :verify_mode
    alias use_ssl? use_ssl

    # Connections are the server's.
    def start
      block_given? ? yield(self) : self
    end

    def finish; end

    def get(path, headers = nil)
      send_request('GET', path, nil, headers)
    end

    def head(path, headers = nil)
      send_request('HEAD', path, nil, headers)
    end

    def delete(path, headers = nil)
      send_request('DELETE', path, nil, headers)
    end

    def post(path, data, headers = nil)
      send_request('POST', path, data, headers)
    end

    def put(path, data, headers = nil)
      send_request('PUT', path, data, headers)
    end

    def patch(path, data, headers = nil)
      send_request('PATCH', path, data, headers)
    end

    def send_request(method, path, data = nil, headers = nil)
      place = "#{@use_ssl ? 'https' : 'http'}://#{@address}#{@port ? ":#{@port}" : ''}#{path}"
      HTTP.ask(method, place, headers, data, @read_timeout)
    end

    def request(request, data = nil)
      send_request(request.method, request.path, data || request.body, request.headers)
    end

    # A request that is put together before it is sent.
    class Request
      def initialize(uri_or_path, headers = nil)
        @path = uri_or_path.respond_to?(:request_uri) ? uri_or_path.request_uri : uri_or_path.to_s
        @headers = {}
        (headers || {}).each { |name, value| self[name] = value }
      end

      attr_reader :path, :headers
      attr_accessor :body

      def [](name)
        @headers[name.to_s.downcase]
      end

      def []=(name, value)
        @headers[name.to_s.downcase] = value
      end

      def content_type=(type)
        self['content-type'] = type
      end

      def set_form_data(params)
        self['content-type'] = 'application/x-www-form-urlencoded'
        @body = HTTP.__send__(:form, params)
      end

      def basic_auth(user, password)
        self['authorization'] = "Basic #{["#{user}:#{password}"].pack('m').delete("\n")}"
      end

      def method
        self.class::METHOD
      end
    end

    class Get < Request
      METHOD = 'GET'
    end

    class Head < Request
      METHOD = 'HEAD'
    end

    class Post < Request
      METHOD = 'POST'
    end

    class Put < Request
      METHOD = 'PUT'
    end

    class Patch < Request
      METHOD = 'PATCH'
    end

    class Delete < Request
      METHOD = 'DELETE'
    end

    class Options < Request
      METHOD = 'OPTIONS'
    end
  end
end
