# frozen_string_literal: true

# A server at max_connections: the connections that make room for new ones, and the refusal of a new one.

require "support/case"
require "support/certificates"
require "support/gate"
require "support/http2_client"
require "support/quic_go"
require "support/tls_connection"

class FullServerTest < Case
  include Certificates
  include Gate

  parallel!

  MAX = 8

  def setup
    firebrick_only
  end

  def full(front_threads: 1, threads: "16:16")
    start(app: APP, threads:, settings: { front_threads:, limits: { max_connections: MAX }, timeouts: { header: 20, keep_alive: 60 } })
  end

  def idle(own, count = MAX)
    Array.new(count) do |i|
      connect(own).tap do |connection|
        connection.write(request("GET", "/#{i}"))
        assert_status 200, connection.read_response
      end
    end
  end

  def active(own, count = MAX)
    hold(own, Array.new(count) { connect(own) })
  end

  def served(own, within: 2)
    started = Time.now
    connection = connect(own)
    connection.write(request("GET", "/new"))
    assert_status 200, connection.read_response
    assert_operator Time.now - started, :<, within
    connection
  end

  it "serves a new client at once while all others are idle" do
    own = full
    used = idle(own)
    served(own)
    assert_closed used.first
    used.drop(1).each { |connection| assert_alive connection }
  end

  it "closes the connections in the order in which they became idle" do
    own = full
    used = idle(own)
    assert_alive used.first
    3.times { served(own) }
    used[1..3].each { |connection| assert_closed connection }
    [used[0], *used.drop(4)].each { |connection| assert_alive connection }
  end

  it "serves many new clients, one after the other and together" do
    own = full
    idle(own)
    30.times { served(own).close }
    Array.new(MAX) { Thread.new { served(own, within: 5) } }.each(&:join)
  end

  it "never closes a connection with a request in progress" do
    own = full
    held = active(own, MAX - 1)
    used = idle(own, 1)
    3.times { served(own).close }
    assert_closed used.first
    open_gate(own, held)
  end

  it "closes connections that have never sent a byte" do
    own = full
    silent = Array.new(MAX) { connect(own) }
    wait_until("all are open") { own.stats.dig("connections", "open") == MAX }
    served(own)
    # The order in which the kernel hands over silent connections is unknown.
    assert_equal(1, silent.count { |connection| connection.ended?(within: 0.2) })
  end

  it "closes a connection whose head does not end before idle ones, once its client had the time to end it" do
    own = full
    partial = connect(own)
    partial.write("GET /partial HTTP/1.1\r\nHost: x\r\n")
    used = idle(own, MAX - 1)
    sleep 1.5
    served(own)
    assert_closed partial
    used.each { |connection| assert_alive connection }
    assert_equal 1, own.stats.dig("connections", "displaced")
  end

  it "does the same with a second head that does not end" do
    own = full
    partial = idle(own, 1).first
    partial.write("GET /partial HTTP/1.1\r\nHost: x\r\n")
    used = idle(own, MAX - 1)
    sleep 1.5
    served(own)
    assert_closed partial
    used.each { |connection| assert_alive connection }
  end

  it "responds with 503 if all connections have requests in progress, and logs it" do
    own = full
    held = active(own)
    extra = connect(own)
    response = extra.read_response
    assert_status 503, response
    assert_equal "1", response["retry-after"]
    assert response["date"]
    assert_closed extra
    wait_until("it is logged") { own.stderr.match?(/503 .*max_connections \(8\)/) }
    open_gate(own, held)
    served(own)
  end

  it "closes idle connections of other front threads" do
    own = full(front_threads: 2)
    idle(own)
    20.times { served(own).close }
    kept = Array.new(MAX) { served(own) }
    20.times { served(own).close }
    kept.each(&:close)
  end

  LARGE = <<~'RUBY'
    run lambda { |env|
      body = env["PATH_INFO"] == "/large" ? "x" * 4_000_000 : env["PATH_INFO"]
      [200, { "content-type" => "text/plain" }, [body]]
    }
  RUBY

  # A server that is full of connections made by the block.
  def full_of(count = MAX, **options)
    settings = { front_threads: 1, limits: { max_connections: MAX }, timeouts: { header: 20, keep_alive: 60, handshake: 20 } }
    own = start(app: LARGE, threads: "4:4", settings:, **options)
    clients = Array.new(count) { yield own }
    wait_until("the server is full") { own.stats.dig("connections", "open") >= MAX }
    [own, clients]
  end

  # New clients are served, although the server waits for each of the others.
  def assert_replaced(own, clients = nil, by: 3)
    by.times { served(own, within: 10).close }
    assert_operator own.stats.dig("connections", "displaced"), :>, 0
    clients&.then { |all| assert(wait_until { all.any? { |client| client.ended?(within: 0.05) } }, "one of them has ended") }
  end

  it "serves new clients when it is full of heads that do not end" do
    own, halves = full_of(4 * MAX) { |to| connect(to).write("GET /half HTTP/1.1\r\nHost: x\r\n") }
    assert_replaced(own, halves)
  end

  it "serves new clients when it is full of uploads that do not go on" do
    own, halves = full_of { |to| connect(to).write("POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nhalf") }
    assert_replaced(own, halves)
  end

  it "serves new clients when it is full of responses that no client reads" do
    own, stalled = full_of { |to| connect(to, receive_buffer: 8192).write(request("GET", "/large")) }
    # While the app works for them, they wait for the server.
    stalled.each(&:read_head)
    sleep 0.5
    assert_replaced(own)
  end

  { "HTTP/1.1" => [["tcp://127.0.0.1:0"], ->(one) { one.write("x") }],
    "HTTP/2" => [["tcp://127.0.0.1:0?h2c=true"], ->(one) { one.write(one.data(1, "x", end_stream: false)) }] }.each do |version, (binds, drip)|
    it "serves new clients when it is full of uploads over #{version} that go on by a byte now and then" do
      own, uploads = full_of(binds:) do |to|
        next http2(to).tap { |one| one.request("/up", body: :open) } if version == "HTTP/2"

        connect(to).write("POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
      end
      dripping = Thread.new do
        loop do
          uploads.each { |one| drip.call(one) }
          sleep 0.05
        end
      end
      sleep 1
      assert_replaced(own)
    ensure
      dripping&.kill
    end
  end

  it "keeps an upload that goes on" do
    settings = { front_threads: 1, limits: { max_connections: MAX }, timeouts: { header: 20, keep_alive: 60 } }
    own = start(app: LARGE, threads: "4:4", settings:)
    half = "POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n"
    stalled = Array.new(MAX - 1) { connect(own).write(half) }
    steady = connect(own).write(half)
    sent = 0
    3.times do
      client = Thread.new { served(own, within: 10).close }
      while client.alive? && sent < 1_990
        steady.write("x")
        sent += 1
        sleep 0.02
      end
      client.join
    end
    steady.write("x" * (2_000 - sent))
    assert_status 200, steady.read_response("POST")
    assert(wait_until { stalled.any? { |client| client.ended?(within: 0.05) } })
  end

  H2C = ["tcp://127.0.0.1:0?h2c=true"].freeze

  def http2(to, **options)
    Http2Client.new(to.address, **options).tap { |client| @connections << client }
  end

  it "serves new clients when it is full of streams of HTTP/2 whose windows are closed" do
    own, = full_of(binds: H2C) { |to| http2(to, settings: { 4 => 0 }).tap { |client| client.request("/large") } }
    assert_replaced(own)
  end

  it "serves new clients when it is full of uploads over HTTP/2 that do not go on" do
    own, = full_of(binds: H2C) do |to|
      http2(to).tap { |client| client.write(client.data(client.request("/up", body: :open), "half", end_stream: false)) }
    end
    assert_replaced(own)
  end

  it "keeps idle clients of HTTP/2 when others say no more than the preface" do
    own = start(app: LARGE, binds: H2C, settings: { front_threads: 1, limits: { max_connections: MAX }, timeouts: { header: 20, keep_alive: 60 } })
    used = http2(own)
    assert_equal 200, used.get("/first").status
    silent = Array.new(MAX - 1) { http2(own) }
    sleep 1.5
    3.times { served(own, within: 10).close }
    assert_equal 200, used.get("/second").status
    assert(wait_until { silent.any? { |client| client.ends?(within: 0.05) } })
  end

  it "serves new clients when it is full of connections that wait for a PROXY header" do
    settings = { front_threads: 1, limits: { max_connections: MAX }, timeouts: { handshake: 20 } }
    own = start(app: LARGE, settings:, binds: ["tcp://127.0.0.1:0?proxy_protocol=v1"])
    waiting = Array.new(4 * MAX) { connect(own).write("PROXY TCP4 ") }
    wait_until("they are counted") { own.stats.dig("connections", "open") >= MAX }
    client = connect(own).write("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n#{request('GET', '/new')}")
    assert_status 200, client.read_response
    assert waiting.first.ended?(within: 5), "the first of those that wait"
  end

  def encrypted(max, **options)
    certificate, key = certificate(subject_alt_name: "IP:127.0.0.1", name: "own")
    settings = { front_threads: 1, limits: { max_connections: max }, timeouts: { handshake: 20, keep_alive: 60 } }
    start(app: LARGE, settings:, files: { "own.pem" => certificate.to_pem, "own.key" => key.to_pem },
          binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"], **options)
  end

  def tls(own, path)
    TlsConnection.new(own.address, deadline: 30).tap do |client|
      @connections << client
      client.write(request("GET", path))
      assert_status 200, client.read_response
    end
  end

  it "keeps idle clients when many begin a TLS handshake and do not end it" do
    own = encrypted(5 * MAX)
    used = Array.new(MAX) { tls(own, "/first") }
    halves = Array.new(10 * MAX) { connect(own).write("\x16\x03\x01\x02\x00") }
    wait_until("the first has made room") { halves.first.ended?(within: 0.05) }
    tls(own, "/new")
    used.each { |connection| assert_alive connection }
  end

  it "serves all of many clients that begin a TLS handshake together" do
    own = encrypted(2 * MAX)
    idle = Array.new(2 * MAX) { tls(own, "/first") }
    statuses = Array.new(MAX) { Thread.new { tls(own, "/together") } }.map(&:value)
    assert_equal MAX, statuses.size
    assert_operator idle.count { |client| client.ended?(within: 0.05) }, :<=, MAX
  end

  # HTTP/3 connections that stall for the duration of the block.
  def crowd(own, count, stop, path = "/up")
    holder = IO.popen(QuicGo.command(own, path, "-crowd", count, "-stop", stop), err: File::NULL)
    assert_equal "holding\n", holder.gets
    yield
  ensure
    Process.kill(:KILL, holder.pid)
    holder.close
  end

  { "handshake" => "handshakes of QUIC that do not end", "request" => "connections of HTTP/3 without a request",
    "head" => "heads over HTTP/3 that do not end", "body" => "uploads over HTTP/3 that do not go on",
    "response" => "responses over HTTP/3 that no client reads" }.each do |stop, what|
    it "serves new clients when it is full of #{what}" do
      skip "needs Go and quic-go: script/setup test" unless QuicGo.client
      own = encrypted(MAX, threads: "4:4")
      crowd(own, 3 * MAX, stop, stop == "response" ? "/large" : "/up") do
        3.times do
          tls(own, "/new").close
          answer = QuicGo.ask(own, "/three").first
          assert_equal [200, nil], answer.values_at("status", "error")
        end
      end
      assert_operator own.stats.dig("connections", "displaced"), :>, 0
    end
  end

  it "keeps idle clients of HTTP/3 when others do not end their first heads" do
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    own = encrypted(MAX, threads: "4:4")
    client = IO.popen(QuicGo.command(own, "/first", "-read", 1, "-pause", "6s", "-then", "/second"))
    assert_equal "paused\n", client.gets
    crowd(own, MAX - 1, "head") do
      sleep 1.5
      3.times { tls(own, "/new").close }
      statuses = JSON.parse(client.read.lines.last).map { |answer| answer["status"] }
      assert_equal [200, 200], statuses
    end
  ensure
    client&.close
  end
end
