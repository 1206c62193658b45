# frozen_string_literal: true

# A backend server with scripted behaviour: it records each request as received, and a script writes the response byte by
# byte. Without a script it responds with a JSON description of the request.

require "json"
require "openssl"
require "socket"
require "support/clock"

class Backend
  include Clock

  Request = Struct.new(:verb, :target, :version, :headers, :raw_head, :body, :connection, keyword_init: true) do
    def [](name)
      all(name).first
    end

    def all(name)
      headers.select { |key, _| key.casecmp?(name) }.map(&:last)
    end

    def describe
      JSON.generate("method" => verb, "target" => target, "headers" => headers, "body" => body.to_s, "connection" => connection)
    end
  end

  # One connection from the proxy.
  class ProxyConnection
    attr_reader :number, :socket

    def initialize(socket, number)
      @socket = socket
      @number = number
      @buffer = +"".b
    end

    # Reads the next request's head; nil at the end of the connection.
    def read_head
      head = read_until("\r\n\r\n") or return
      lines = head.split("\r\n")
      verb, target, version = lines.shift.split(" ", 3)
      headers = lines.map { |line| line.split(/:[ \t]*/, 2) }
      Request.new(verb: verb, target: target, version: version, headers: headers, raw_head: head, body: +"".b, connection: @number)
    end

    # Reads the whole body; a block gets its pieces instead.
    def read_body(req, &block)
      block ||= ->(piece) { req.body << piece }
      return read_chunks(&block) if req["transfer-encoding"]

      left = req["content-length"].to_i
      while left.positive?
        piece = take(left) or raise EOFError, "the request's body ended early"
        left -= piece.bytesize
        block.call(piece)
      end
    end

    def write(bytes)
      @socket.write(bytes)
    end

    def respond(body, status: "200 OK", headers: {})
      fields = { "Content-Length" => body.bytesize, "Content-Type" => "text/plain" }.merge(headers).compact
      write("HTTP/1.1 #{status}\r\n#{fields.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n#{body}".b)
    end

    def chunk(bytes)
      write("#{bytes.bytesize.to_s(16)}\r\n#{bytes}\r\n")
    end

    # The next bytes; nil at the end of the connection.
    def read_some
      return @buffer.slice!(0, @buffer.bytesize) unless @buffer.empty?

      @socket.readpartial(65_536)
    rescue SystemCallError, IOError
      nil
    end

    # True when the proxy closes the connection within that time.
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
  # greeting:: called with each new ProxyConnection before anything is read
  # script::   called with the ProxyConnection and each request's head; reads the body itself
  def initialize(port: 0, unix: nil, tls: nil, greeting: nil, &script)
    @listener = unix ? UNIXServer.new(unix) : TCPServer.new("127.0.0.1", port)
    @port = @listener.local_address.ip_port unless unix
    @tls = tls
    @greeting = greeting
    @script = script || method(:describe)
    @lock = Mutex.new
    @req = []
    @visits = []
    @errors = []
    @thread = Thread.new { accept }
  end

  def origin(path = "")
    "http#{'s' if @tls}://127.0.0.1:#{@port}#{path}"
  end

  # The requests so far.
  def requests
    @lock.synchronize { @req.dup }
  end

  def connections
    @lock.synchronize { @visits.dup }
  end

  # Closes the listener and all connections, as if the process was killed.
  def close
    @thread.kill
    @thread.join
    @listener.close
    @lock.synchronize { @visits.dup }.each(&:close)
  rescue IOError
    nil
  end

  private

  def describe(conn, req)
    conn.read_body(req)
    conn.respond(req.describe, headers: { "Content-Type" => "application/json" })
  end

  def accept
    loop do
      socket = @listener.accept
      Thread.new { serve(socket) }
    end
  end

  def serve(socket)
    socket = OpenSSL::SSL::SSLSocket.new(socket, @tls).tap { |secure| secure.sync_close = true }.accept if @tls
    conn = @lock.synchronize { ProxyConnection.new(socket, @visits.size).tap { |one| @visits << one } }
    @greeting&.call(conn)
    until socket.closed?
      req = conn.read_head or break
      @lock.synchronize { @req << req }
      @script.call(conn, req)
    end
  rescue SystemCallError, IOError, OpenSSL::SSL::SSLError => e
    @lock.synchronize { @errors << e }
  ensure
    conn ? conn.close : socket.close
  end
end
