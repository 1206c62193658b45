# frozen_string_literal: true

# A server behind a proxy that does exactly as it is told: what it read is kept as it came, what it sends is written byte
# by byte by a script. Without a script it is polite and answers with what it was asked, as JSON.

require "json"
require "openssl"
require "socket"
require "support/clock"

class Backend
  include Clock

  Asked = Struct.new(:verb, :target, :version, :headers, :raw_head, :body, :visit, keyword_init: true) do
    def [](name)
      all(name).first
    end

    def all(name)
      headers.select { |key, _| key.casecmp?(name) }.map(&:last)
    end

    def describe
      JSON.generate("method" => verb, "target" => target, "headers" => headers, "body" => body.to_s, "visit" => visit)
    end
  end

  # One connection from the proxy.
  class Visit
    attr_reader :number, :socket

    def initialize(socket, number)
      @socket = socket
      @number = number
      @buffer = +"".b
    end

    # The next request's head, nil at the end of the connection.
    def read_head
      head = read_until("\r\n\r\n") or return
      lines = head.split("\r\n")
      verb, target, version = lines.shift.split(" ", 3)
      headers = lines.map { |line| line.split(/:[ \t]*/, 2) }
      Asked.new(verb: verb, target: target, version: version, headers: headers, raw_head: head, body: +"".b, visit: @number)
    end

    # The whole body; a block gets its pieces instead.
    def read_body(asked, &block)
      block ||= ->(piece) { asked.body << piece }
      return read_chunks(&block) if asked["transfer-encoding"]

      left = asked["content-length"].to_i
      while left.positive?
        piece = take(left) or raise EOFError, "the request's body ended early"
        left -= piece.bytesize
        block.call(piece)
      end
    end

    def write(bytes)
      @socket.write(bytes)
    end

    def answer(body, status: "200 OK", headers: {})
      fields = { "Content-Length" => body.bytesize, "Content-Type" => "text/plain" }.merge(headers).compact
      write("HTTP/1.1 #{status}\r\n#{fields.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n#{body}".b)
    end

    def chunk(bytes)
      write("#{bytes.bytesize.to_s(16)}\r\n#{bytes}\r\n")
    end

    # Whatever comes next, nil at the end.
    def read_some
      return @buffer.slice!(0, @buffer.bytesize) unless @buffer.empty?

      @socket.readpartial(65_536)
    rescue SystemCallError, IOError
      nil
    end

    # True when the proxy ends the connection within that time.
    def ended?(within: 10)
      loop do
        return false unless @socket.to_io.wait_readable(within)
        return true unless read_some
      end
    end

    def close
      @socket.close
    rescue IOError, SystemCallError
      nil
    end

    def reset!
      @socket.to_io.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii"))
      close
    end

    private

    def read_until(mark)
      until (at = @buffer.index(mark))
        return nil unless fill
      end
      @buffer.slice!(0, at + mark.bytesize)
    end

    def take(most)
      return nil if @buffer.empty? && !fill

      @buffer.slice!(0, [most, @buffer.bytesize].min)
    end

    def read_chunks
      loop do
        left = (read_until("\r\n") or raise EOFError).to_i(16)
        break if left.zero?

        while left.positive?
          piece = take(left) or raise EOFError
          left -= piece.bytesize
          yield piece
        end
        read_until("\r\n")
      end
      nil until read_until("\r\n") == "\r\n"
    end

    def fill
      @buffer << @socket.readpartial(65_536)
    rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
      nil
    end
  end

  attr_reader :port, :errors

  # unix::     path of a socket to listen on, instead of a port of 127.0.0.1
  # tls::      an OpenSSL::SSL::SSLContext
  # greeting:: called with each new Visit before anything is read
  # script::   called with the Visit and each request's head; reads the body itself
  def initialize(port: 0, unix: nil, tls: nil, greeting: nil, &script)
    @listener = unix ? UNIXServer.new(unix) : TCPServer.new("127.0.0.1", port)
    @port = @listener.local_address.ip_port unless unix
    @tls = tls
    @greeting = greeting
    @script = script || method(:describe)
    @lock = Mutex.new
    @asked = []
    @visits = []
    @errors = []
    @thread = Thread.new { accept }
  end

  def origin(path = "")
    "http#{'s' if @tls}://127.0.0.1:#{@port}#{path}"
  end

  # The requests so far.
  def asked
    @lock.synchronize { @asked.dup }
  end

  def visits
    @lock.synchronize { @visits.dup }
  end

  # Ends as a killed process does: nobody listens, connections are gone.
  def close
    @thread.kill
    @thread.join
    @listener.close
    @lock.synchronize { @visits.dup }.each(&:close)
  rescue IOError
    nil
  end

  private

  def describe(visit, asked)
    visit.read_body(asked)
    visit.answer(asked.describe, headers: { "Content-Type" => "application/json" })
  end

  def accept
    loop do
      socket = @listener.accept
      Thread.new { serve(socket) }
    end
  end

  def serve(socket)
    socket = OpenSSL::SSL::SSLSocket.new(socket, @tls).tap { |secure| secure.sync_close = true }.accept if @tls
    visit = @lock.synchronize { Visit.new(socket, @visits.size).tap { |one| @visits << one } }
    @greeting&.call(visit)
    until socket.closed?
      asked = visit.read_head or break
      @lock.synchronize { @asked << asked }
      @script.call(visit, asked)
    end
  rescue SystemCallError, IOError, OpenSSL::SSL::SSLError => e
    @lock.synchronize { @errors << e }
  ensure
    visit ? visit.close : socket.close
  end
end
