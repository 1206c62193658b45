# frozen_string_literal: true

# Many keep-alive clients in one thread: each sends its next request as soon as it has the response, or after a pause.

require "support/clock"
require "support/connection"

class Load
  include Clock

  Completed = Struct.new(:client, :sent_at, :received_at, :status, :body, keyword_init: true)

  # All responses in the order of arrival, and all errors.
  attr_reader :completed, :errors

  # pause:: seconds of a client between a response and its next request; without one the machine has nothing left for others
  def initialize(address, clients:, path: "/", keep_alive: true, pause: 0)
    @address = address
    @pause = pause
    @count = clients
    @path = path
    @keep_alive = keep_alive
    @completed = []
    @errors = []
    @stopping = false
  end

  def start
    @thread = Thread.new { run }
    @thread.report_on_exception = false
    self
  end

  # Waits for the requests in progress.
  def stop
    @stopping = true
    @thread.join(30) or raise Minitest::Assertion, "#{@open.size} clients still wait for a response"
    self
  end

  private

  # due:: when it sends its next request; nil while one is in progress
  Client = Struct.new(:number, :socket, :sent_at, :buffer, :due)

  def run
    @open = {}
    @count.times { |number| open_client(number) }
    until @open.empty?
      readable, = IO.select(@open.keys, nil, nil, @pause.positive? ? @pause / 2 : 0.5)
      readable&.each { |socket| read(@open[socket]) }
      @open.values.select { |client| client.due && (@stopping || client.due <= now) }.each { |client| go_on(client) }
    end
  end

  # Ends a pause.
  def go_on(client)
    return forget(client) if @stopping

    client.due = nil
    ask(client)
  rescue SystemCallError => e
    failed(client, e.message)
  end

  def open_client(number)
    socket = TCPSocket.new(*@address)
    socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    ask(@open[socket] = Client.new(number, socket, nil, +"".b))
  rescue SystemCallError => e
    @errors << "client #{number}: #{e.message}"
  end

  def ask(client)
    client.sent_at = now
    client.socket.write("GET #{@path} HTTP/1.1\r\nHost: x\r\n#{"Connection: close\r\n" unless @keep_alive}\r\n")
  end

  def read(client)
    piece = client.socket.read_nonblock(65_536, exception: false)
    return if piece == :wait_readable
    return lost(client) if piece.nil?

    client.buffer << piece
    complete(client) if complete?(client.buffer)
  rescue SystemCallError => e
    failed(client, e.message)
  end

  # Responses of these tests have a Content-Length or end the connection.
  def complete?(buffer)
    head, body = buffer.split("\r\n\r\n", 2)
    body && (length = head[/^content-length: (\d+)/i, 1]) && body.bytesize >= length.to_i
  end

  def complete(client)
    @completed << Completed.new(client: client.number, sent_at: client.sent_at, received_at: now, status: client.buffer[9, 3].to_i,
                                body: client.buffer.split("\r\n\r\n", 2).last)
    ends = client.buffer.match?(/^connection: close/i)
    client.buffer.clear
    if @stopping || ends || !@keep_alive
      forget(client)
      open_client(client.number) unless @stopping
    elsif @pause.positive?
      client.due = now + @pause
    else
      ask(client)
    end
  end

  def lost(client)
    failed(client, "closed without a response; received #{client.buffer.inspect}")
  end

  def failed(client, why)
    @errors << "client #{client.number}: #{why}"
    forget(client)
  end

  def forget(client)
    @open.delete(client.socket)
    client.socket.close
  end
end
