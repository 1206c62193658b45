# Asking other servers, and what is read of their answers: `http_request`.
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
    def initialize(url, method, headers, body, timeout, host = nil)
      @reply = Rt::Reply.new(Rt.wait!(:fetch, url.to_s, method.to_s, Rt.pairs(headers), Rt.text_of(body), timeout, host))
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
