# `Net::HTTP` and its exceptions, on top of `http_request`.
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

  # Raised by `value` for a response that is not a success.
  class HTTPExceptions < ProtocolError
    def initialize(message, response)
      super(message)
      @response = response
    end

    attr_reader :response
  end

  # A response whose body has been read.
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

  # The methods of Ruby's Net::HTTP that do not expose the connection. They wait without blocking the thread;
  # redirects are not followed.
  class HTTP
    class << self
      # The body, for a URI or for host, path and port.
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

      # A response with its body; raises failures.
      def ask(method, url, headers, body, timeout = nil)
        reply = H2O::HttpRequest.new(url, method, headers, body, timeout, host_of(headers)).reply
        head = reply.head
        raise Rt.fault(*reply.failure) unless head
        HTTPResponse.of(head[0]).new(head[0], head[1], head[2].join)
      end

      private

      # A Host field of the caller is used here, as in Ruby; `http_request` ignores it, as in H2O.
      def host_of(headers)
        headers.each { |name, value| return value.to_s if name.to_s.downcase == 'host' } if headers
        nil
      end

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

    # The server manages connections.
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

    # A request that is built before it is sent.
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
