# frozen_string_literal: true

# Clients that request much from a proxied site and read none of it: the resources that they occupy at the origin and in the server, and the
# service for others.

require "support/site_case"
require "support/http2_client"

# Quiet, because the server decides by time which responses no client reads, and the backend is a thread of this process.
class ProxyStallsTest < SiteCase
  quiet! 25

  H2C = "tcp://127.0.0.1:0?h2c=true"
  STREAMS = 128
  TEXT = ("some text that goes on and on, number %d\n" * 20).freeze

  def setup
    firebrick_only
    @reactors = []
  end

  def teardown
    @reactors.each(&:close)
  end

  # A backend that sends a megabyte to each request below /big; one process for thousands of connections, with +most+ as their peak number.
  class Reactor
    # All clients share these: thousands of them have a megabyte each to send.
    BIG, SMALL = [TEXT * 1200, "hello"].map { |body| "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}".freeze }
    # Bytes that are sent at a time.
    PIECE = 65_536

    attr_reader :port, :peak

    def initialize(most: 10_000)
      @listener = TCPServer.new("127.0.0.1", 0)
      @listener.listen(4096)
      @port = @listener.local_address.ip_port
      @most = most
      @peak = 0
      @thread = Thread.new { run }
    end

    def origin = "http://127.0.0.1:#{@port}"

    def open = @clients.size

    def close
      @thread.kill
      @thread.join
      [@listener, *@clients.keys].each { |one| one.close unless one.closed? }
    end

    private

    def run
      @clients = {}
      loop do
        readers = @clients.keys
        readers << @listener if @clients.size < @most
        ready, writable = IO.select(readers, @clients.reject { |_, state| state[:out].empty? }.keys, nil, 0.05)
        (ready || []).each { |io| io == @listener ? accept : take(io) }
        (writable || []).each { |io| send(io) }
      end
    end

    def accept
      socket = @listener.accept_nonblock(exception: false)
      return if socket == :wait_readable

      socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_SNDBUF, 16_384)
      @clients[socket] = { in: +"", out: [] }
      @peak = [@peak, @clients.size].max
    end

    def take(socket)
      state = @clients[socket] or return
      read = socket.read_nonblock(65_536, exception: false)
      return drop(socket) if read.nil?
      return if read == :wait_readable

      state[:in] << read
      while (head = state[:in].slice!(/\A.*?\r\n\r\n/m))
        state[:out] << [head.start_with?("GET /big") ? BIG : SMALL, 0]
      end
    rescue SystemCallError, IOError
      drop(socket)
    end

    def send(socket)
      state = @clients[socket] or return
      response, at = state[:out].first
      sent = socket.write_nonblock(response.byteslice(at, PIECE), exception: false)
      return unless sent.is_a?(Integer)

      at + sent == response.bytesize ? state[:out].shift : state[:out].first[1] = at + sent
    rescue SystemCallError, IOError
      drop(socket)
    end

    def drop(socket)
      @clients.delete(socket)
      socket.close
    end
  end

  def reactor(**options)
    Reactor.new(**options).tap { |one| @reactors << one }
  end

  # A client that requests +count+ responses and has no room for any.
  def stalled(own, count = STREAMS, headers: {})
    client = Http2Client.new(own.address, preface: Http2Client::PREFACE)
    @connections << client
    client.write(client.settings_frame({ 4 => 0 }))
    count.times { client.request("/api/big", headers: headers) }
    client
  end

  def proxied(behind, rules = {}, **options)
    served({ proxies: { "/api": { origin: behind.origin } } }.merge(rules), binds: [H2C], **options)
  end

  def answered_within(seconds, own, path = "/api/small")
    took = elapsed { assert_status 200, get(path, to: own) }
    assert_operator took, :<, seconds
  end

  it "gives a connection of a client a part of the origin's connections" do
    behind = reactor
    own = proxied(behind)
    20.times { stalled(own) }
    wait_until("unread responses", within: 30) { behind.open >= 200 }
    sleep 3
    # Usually fewer; more when this process is slow to respond.
    assert_operator behind.peak, :<, 20 * STREAMS / 2
    3.times { answered_within(5, own) }
  end

  it "lets the requests that wait go on when the client reads" do
    behind = reactor
    own = proxied(behind)
    client = stalled(own)
    wait_until("unread responses", within: 30) { behind.open >= 20 }
    client.write(client.settings_frame({ 4 => 1 << 30 }) + client.window_update(0, (1 << 30) - 65_535))
    length = (TEXT * 1200).bytesize
    sizes = Hash.new(0)
    client.discard { |stream, bytes| sizes[stream] += bytes.bytesize }
    client.read_until("all responses", within: 60) { client.answers.size == STREAMS && client.answers.values.all?(&:over?) }
    assert_equal [length], sizes.values.uniq
    assert_empty client.answers.values.filter_map(&:reset)
  end

  it "serves others when an origin has no connection left but unread ones" do
    behind = reactor(most: 120)
    own = proxied(behind)
    4.times { stalled(own) }
    wait_until("all connections to be taken", within: 30) { behind.open >= 120 }
    sleep 2.5
    5.times { answered_within(5, own) }
  end

  it "serves others when unread responses hold the last descriptors" do
    behind = reactor
    own = proxied(behind, open_files: 256)
    8.times { stalled(own) }
    wait_until("unread responses", within: 30) { behind.open >= 150 }
    sleep 3
    10.times { answered_within(5, own) }
  end

  it "serves many requests of a client that reads" do
    behind = reactor
    own = proxied(behind)
    client = Http2Client.new(own.address)
    @connections << client
    4.times do
      asked = Array.new(100) { client.request("/api/small") }
      asked.each { |stream| client.answer(stream) }
    end
    assert_equal [200], client.answers.values.map(&:result).uniq
    assert_operator behind.peak, :<=, STREAMS
  end

  it "leaves slow readers alone while nobody needs what they hold" do
    behind = reactor
    own = proxied(behind)
    client = stalled(own, 20)
    wait_until("unread responses", within: 30) { behind.open >= 20 }
    sleep 4
    answered_within(5, own)
    assert_operator behind.open, :>=, 20
    assert client.alive?
    assert_empty client.answers.values.filter_map(&:reset)
  end

  it "does not hold up requests that their origin lets wait" do
    waiting = Queue.new
    behind = backend do |conn, req|
      if req.target == "/wait"
        waiting << conn
      else
        conn.respond("hello")
      end
    end
    own = proxied(behind)
    client = Http2Client.new(own.address)
    @connections << client
    100.times { client.request("/api/wait") }
    wait_until("all requests at the origin", within: 20) { waiting.size == 100 }
    assert_equal 200, client.get("/api/x").status
    100.times { waiting.pop.respond("late") }
  end

  { "br" => 2, "zstd" => 4, "gzip" => 16 }.each do |coding, most|
    it "keeps few encoders of #{coding} for responses that are not read" do
      behind = reactor
      own = proxied(behind, { compress: true })
      client = stalled(own, 30, headers: { "accept-encoding" => coding })
      client.read_until("all heads", within: 30) { client.answers.values.count(&:status) == 30 }
      codings = client.answers.values.map { |answer| answer["content-encoding"] }.tally
      assert_equal({ coding => most, nil => 30 - most }, codings)
      assert_equal ["Accept-Encoding"], client.answers.values.map { |answer| answer["vary"] }.uniq
      assert_equal coding, get("/api/big", to: own, headers: { "Accept-Encoding" => coding })["content-encoding"]
    end
  end

  it "takes little memory for unread compressed responses" do
    behind = reactor
    own = proxied(behind, { compress: true })
    get("/api/big", to: own, headers: { "Accept-Encoding" => "br" })
    memory = -> { File.read("/proc/#{own.pid}/status")[/^VmRSS:\s+(\d+) kB/, 1].to_i / 1024 }
    before = memory.call
    4.times { stalled(own, headers: { "accept-encoding" => "br" }) }
    wait_until("unread responses", within: 30) { behind.open >= 100 }
    sleep 1
    assert_operator memory.call - before, :<, 64
  end
end
