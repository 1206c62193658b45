# frozen_string_literal: true

# A raw client connection: writes bytes, parses responses strictly, and every wait has a deadline.

require "socket"
require "support/clock"
require "support/response_reader"

class Connection
  include Clock

  attr_reader :socket, :buffered

  # +address+ is [host, port] or the path of a Unix socket. +receive_buffer+ (bytes) makes a client that can stop
  # reading; it has to be set before connecting.
  def initialize(address, deadline: 15, receive_buffer: nil)
    @deadline = deadline
    @buffered = +"".b
    @ended = false
    @reset = false
    @reader = ResponseReader.new(self)
    @socket = open_socket(address, receive_buffer)
  end

  def write(bytes)
    @socket.write(bytes)
    self
  rescue Errno::EPIPE, Errno::ECONNRESET
    self # the server may refuse the request early; its response can still be read
  end

  # Sends each byte in a packet of its own.
  def write_slowly(bytes, pause: 0)
    bytes.each_char do |byte|
      write(byte)
      sleep pause if pause.positive?
    end
    self
  end

  def read_response(method = "GET")
    @reader.read(method)
  end

  def read_head
    @reader.read_head
  end

  def read_body(response, method = "GET")
    @reader.read_body(response, method)
  end

  # True when the server reset the connection instead of closing it.
  def reset?
    @reset
  end

  # True when the connection ends within that time; bytes received before stay in +buffered+.
  def ended?(within: 5)
    stop = now + within
    fill(stop - now) until @ended || now >= stop
    @ended
  end

  # True when nothing arrives, and the connection stays open, for that time.
  def silent?(seconds = 0.15)
    fill(seconds) if @buffered.empty? && !@ended
    @buffered.empty? && !@ended
  end

  def read_through(mark)
    need(mark.inspect) { (at = @buffered.index(mark)) && @buffered.slice!(0, at + mark.bytesize) }
  end

  def read_exactly(count)
    need("#{count} bytes") { @buffered.slice!(0, count) if @buffered.bytesize >= count }
  end

  # The bytes received so far, at least one.
  def read_some
    need("some bytes") { @buffered.slice!(0, @buffered.bytesize) unless @buffered.empty? }
  end

  def read_to_end
    need("the end") { @buffered.slice!(0, @buffered.bytesize) if @ended }
  end

  # Resets the connection (RST).
  def reset!
    @socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii"))
    @socket.close
  end

  def close
    @socket.close unless @socket.closed?
  end

  def local_port
    @socket.local_address.ip_port
  end

  private

  def open_socket(address, receive_buffer)
    return UNIXSocket.new(address) if address.is_a?(String)

    socket = Socket.new(Socket::AF_INET, Socket::SOCK_STREAM)
    socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_RCVBUF, receive_buffer) if receive_buffer
    socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    socket.connect(Socket.sockaddr_in(address[1], address[0]))
    socket
  end

  def need(what)
    stop = now + @deadline
    loop do
      value = yield
      return value if value
      raise TruncatedResponse, "the connection #{@reset ? 'was reset' : 'ended'} before #{what}; received #{shown}" if @ended
      raise Minitest::Assertion, "no response within #{@deadline} s: expected #{what}, received #{shown}" if now >= stop

      fill(stop - now)
    end
  end

  def shown
    @buffered.bytesize > 400 ? "#{@buffered.byteslice(0, 400).inspect}… (#{@buffered.bytesize} bytes)" : @buffered.inspect
  end

  def fill(timeout)
    return unless timeout.positive? && @socket.wait_readable(timeout)

    chunk = @socket.read_nonblock(262_144, exception: false)
    case chunk
    when String then @buffered << chunk
    when nil then @ended = true
    end
  rescue Errno::ECONNRESET, Errno::EPIPE
    @ended = @reset = true
  end
end
