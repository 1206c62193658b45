# `http_request`: requests to other servers, and their responses.
module Rt
  class << self
    # Alternating names and values; several values of a name are joined by line breaks.
    def pairs(fields)
      flat = []
      return flat if fields.nil?
      fields.each do |name, value|
        value = value.map { |one| one.to_s }.join("\n") if value.is_a?(Array)
        flat << name.to_s << value.to_s
      end
      flat
    end

    # A body as a String; objects with `read` are read.
    def text_of(body)
      return body if body.nil? || body.is_a?(String)
      body.respond_to?(:read) ? body.read : body.to_s
    end
  end

  # A response that is on its way. Its head can be fetched any number of times.
  class Reply
    def initialize(number)
      @number = number
    end

    # [status, headers, body], or nil if it failed: see `failure`.
    def head
      unless @asked
        @head, @failure = parse(Rt.wait!(Rt::WAIT_HELD_HEAD, @number))
        @asked = true
      end
      @head
    end

    # Class and reason of the failure.
    attr_reader :failure

    private

    def parse(reply)
      return [nil, reply] if reply.size == 2
      headers = {}
      at = 0
      list = reply[1]
      while at < list.size
        name = list[at]
        headers[name] = headers.key?(name) ? "#{headers[name]}\n#{list[at + 1]}" : list[at + 1]
        at += 2
      end
      [[reply[0], headers, reply[2] ? H2O::HttpInputStream.new(@number) : H2O::HttpInputStream::Empty.new], nil]
    end
  end
end

module H2O
  # The response's body is incomplete.
  class HttpError < StandardError; end

  # The request has come back to this server's handlers too often.
  class LoopDetected < HttpError; end

  # The object that `http_request` returns: the request has been sent, `join` waits for the response.
  class HttpRequest
    def initialize(url, method, headers, body, timeout, host = nil)
      @reply = Rt::Reply.new(Rt.wait!(Rt::WAIT_FETCH, url.to_s, method.to_s, Rt.pairs(headers), Rt.text_of(body), timeout, host))
    end

    # [status, headers, body]. If the server cannot be reached, a 500 with the reason in `client-warning`; 508 if the request runs in a loop.
    def join
      head = @reply.head
      return head if head
      kind, reason = @reply.failure
      [kind == 'H2O::LoopDetected' ? 508 : 500, { 'client-warning' => reason }, HttpInputStream::Message.new(reason)]
    end

    # For callers that raise failures.
    attr_reader :reply
  end

  # The body of a response: read once, at the reader's pace.
  class HttpInputStream
    def initialize(number)
      @number = number
    end

    def each
      take
      while (part = Rt.wait!(Rt::WAIT_HELD_READ, @number))
        yield part
      end
      self
    end

    def join
      take
      Rt.wait!(Rt::WAIT_HELD_JOIN, @number)
    end
    alias read join

    # The response's number if its body is unread: then it is sent to the client without passing through Ruby.
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

    # The body of a failure: its reason.
    class Message
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
    class Empty < Message
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
  # Sends a request to another server at once. Options: method, headers (or header), body, timeout in seconds.
  def http_request(url, options = nil)
    options ||= {}
    headers = options[:headers] || options[:header]
    H2O::HttpRequest.new(url, options[:method] || 'GET', headers, options[:body], options[:timeout])
  end
end
