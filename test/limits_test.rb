# frozen_string_literal: true

# Limits on size, number and time arrive from the settings. Questions to the protocol about them are in server/protocols (h1,
# http/tests/it/limits).

require "support/case"

# The app shared by the suites of this file.
LIMITS_APP = <<~'RUBY'
  SEEN = Queue.new
  run lambda { |env|
    path = env["PATH_INFO"]
    text = { "content-type" => "text/plain" }
    next [200, text, [Array.new(SEEN.size) { SEEN.pop.tap { |one| SEEN << one } }.join("\n")]] if path == "/seen"
    SEEN << "#{path}?#{env["QUERY_STRING"]}"
    sleep env["QUERY_STRING"].to_f if path == "/sleep"
    body = env["rack.input"] ? env["rack.input"].read : ""
    [200, text.merge("x-size" => body.bytesize.to_s), [path]]
  }
RUBY

class SizeLimitsTest < Case
  parallel!

  shared_server app: LIMITS_APP, settings: {
    limits: { max_header_bytes: 2048, max_headers: 20, max_uri: 512, max_body: 10_000, max_requests_per_connection: 5 }
  }

  def setup
    firebrick_only
  end

  def refused(status, bytes, to: server)
    connection = connect(to)
    connection.write(bytes)
    response = connection.read_response
    assert_status status, response
    assert_includes response.connection, "close"
    assert_closed connection
    refute_includes get("/seen", to: to).body, "refused"
    response
  end

  it "has the limits of the settings, and a status for each" do
    refused 414, request("GET", "/refused#{'a' * 512}")
    refused 431, request("GET", "/refused", (1..15).to_h { |i| ["X-#{i}", "a" * 150] })
    refused 431, request("GET", "/refused", (1..20).to_h { |i| ["X-#{i}", "a"] })
    refused 413, "POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n"
    refused 413, "POST /refused HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + "1000\r\n#{'a' * 4096}\r\n" * 3
    connection = connect
    connection.write((1..10).map { |i| request("GET", "/pipelined#{i}") }.join)
    5.times { |i| assert_equal i == 4, connection.read_response.connection.include?("close"), "request #{i + 1}" }
    assert_closed connection
    refute_includes get("/seen").body, "/pipelined6"
  end

  it "accepts what is as large as it may be" do
    assert_status 200, get("/#{'a' * 511}", headers: (1..19).to_h { |i| ["X-#{i}", "a"] })
    assert_equal "10000", post("/", "a" * 10_000)["x-size"]
    coded = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked("a" * 5000, "a" * 5000)
    assert_equal "10000", ask(coded)["x-size"]
  end
end

class TimeLimitsTest < Case
  parallel!

  shared_server app: LIMITS_APP, settings: {
    timeouts: { header: 1, body_min_rate: 1000, body_grace: 1, keep_alive: 1 }
  }

  def setup
    firebrick_only
  end

  it "responds with 408 to a head that stops" do
    connection = connect
    connection.write("GET /refused HTTP/1.1\r\nHost: x\r\n")
    assert_status 408, connection.read_response
    assert_closed connection
  end

  it "gives the first connection after a pause as much time as any other" do
    own = start(app: LIMITS_APP, settings: { timeouts: { header: 2 } })
    assert_status 200, get("/", to: own)
    sleep 2.5 # Without connections the server has nothing to do, and does not look at the clock.
    connection = connect(own)
    sleep 0.5
    connection.write(request("GET", "/"))
    assert_status 200, connection.read_response
  end

  it "limits it for later requests of a connection, too" do
    connection = connect
    connection.write(request("GET", "/first") + "GET /refused HTTP/1.1\r\n")
    assert_status 200, connection.read_response
    assert_status 408, connection.read_response
    assert_closed connection
  end

  it "responds with 408 to a body that arrives too slowly" do
    connection = connect
    connection.write("POST /refused HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    sender = Thread.new { connection.write_slowly("1\r\na\r\n" * 100, pause: 0.02) }
    assert_status 408, connection.read_response
    assert_closed connection
    refute_includes get("/seen").body, "/refused"
  ensure
    sender&.kill
  end

  it "closes an idle connection silently" do
    connection = connect
    connection.write(request("GET", "/"))
    assert_status 200, connection.read_response
    assert_closed connection, within: 10
    refute connection.reset?
  end

  it "does not count time in the app as idle time" do
    connection = connect
    connection.write(request("GET", "/sleep?2.5"))
    assert_status 200, connection.read_response
  end
end

class QueueLimitsTest < Case
  parallel!

  def setup
    firebrick_only
  end

  # Occupies the only thread of a 1x1 server until `open`.
  def occupied(server)
    holder = connect(server)
    holder.write(request("GET", "/gate"))
    wait_until("the request to reach the app") { File.exist?(server.path("entered.log")) }
    holder
  end

  it "responds with 503 and Retry-After when the queue is full, and serves the requests in it" do
    own = start(threads: "1:1", fibers: 1, app: gated_app, settings: { limits: { max_queue: 2 } })
    holder = occupied(own)
    waiting = Array.new(2) { |i| connect(own).write(request("GET", "/waiting#{i}")) }
    wait_for_requests(3, on: own)
    refused = get("/too-many", to: own)
    assert_status 503, refused
    assert_match(/\A\d+\z/, refused["retry-after"])
    open_gate(own)
    assert_status 200, holder.read_response
    waiting.each_with_index { |connection, i| assert_equal "/waiting#{i}", connection.read_response.body }
    refute_includes seen(own), "/too-many"
  end

  it "responds with 503 and Retry-After to a request that waited too long, and does not pass it to the app" do
    own = start(threads: "1:1", fibers: 1, app: gated_app, settings: { timeouts: { queue: 0.5 } })
    holder = occupied(own)
    late = get("/late", to: own)
    assert_status 503, late
    assert_match(/\A\d+\z/, late["retry-after"])
    open_gate(own)
    assert_status 200, holder.read_response
    refute_includes seen(own), "/late"
  end

  it "keeps the connection of a request that got 503 usable" do
    own = start(threads: "1:1", fibers: 1, app: gated_app, settings: { timeouts: { queue: 0.3 } })
    holder = occupied(own)
    connection = connect(own)
    connection.write(request("POST", "/late", {}, "body"))
    response = connection.read_response
    assert_status 503, response
    open_gate(own)
    assert_status 200, holder.read_response
    response.connection.include?("close") ? assert_closed(connection) : assert_alive(connection)
  end

  it "never serves more than max_connections at a time" do
    own = start(threads: "1:1", fibers: 1, app: gated_app, settings: { limits: { max_connections: 8 } })
    used = [occupied(own)]
    7.times { |i| used << connect(own).write(request("GET", "/waiting#{i}")) }
    wait_for_requests(8, on: own)
    extra = connect(own)
    extra.write(request("GET", "/extra"))
    assert_match(%r{\A(HTTP/1\.1 503 .*)?\z}m, extra.buffered) if extra.ended?
    refute_match(/ 200 /, extra.buffered)
    open_gate(own)
    used.each { |connection| assert_status 200, connection.read_response }
    assert_status 200, get("/after", to: own)
    refute_includes seen(own), "/extra"
  end

  private

  # Uses a file, because the only thread is waiting.
  def gated_app
    <<~'RUBY'
      SEEN = []
      run lambda { |env|
        path = env["PATH_INFO"]
        text = { "content-type" => "text/plain" }
        next [200, text, [SEEN.join("\n")]] if path == "/seen"
        SEEN << path
        File.write("entered.log", "") if path == "/gate"
        sleep 0.02 until path != "/gate" || File.exist?("gate.log")
        [200, text, [path]]
      }
    RUBY
  end

  def open_gate(server)
    File.write(server.path("gate.log"), "open")
  end

  def seen(server)
    get("/seen", to: server).body
  end
end

# Alone: it compares how long requests take.
class IdleConnectionsTest < Case
  COUNT = Integer(ENV.fetch("TEST_IDLE", "2000"))

  it "holds #{COUNT} idle connections in under 2 KiB each, and responds as fast as without them" do
    firebrick_only
    own = start(app: LIMITS_APP, settings: { limits: { max_connections: COUNT + 1000 }, timeouts: { keep_alive: 120 } })
    allow_open_files(COUNT + 1000)
    measure = connect(own)
    before_time = median_time(measure)
    # The first few hundred fill the allocator's pools and shared buffers.
    idle = Array.new(500) { opened(own) }
    before_bytes = Processes.private_bytes(own.pid)
    idle.concat(Array.new(COUNT) { opened(own) })
    growth = Processes.private_bytes(own.pid) - before_bytes
    assert_operator growth / COUNT, :<, 2048, "bytes of front for each idle connection"
    after_time = median_time(measure)
    assert_operator after_time, :<, before_time * 3, "median seconds of a request with #{COUNT} idle connections against #{before_time} without"
    idle.sample(20).each { |connection| assert_alive connection }
  end

  private

  def allow_open_files(count)
    soft, hard = Process.getrlimit(:NOFILE)
    Process.setrlimit(:NOFILE, [count, hard].min, hard) if soft < count
  end

  def opened(server)
    connect(server).tap do |connection|
      connection.write(request("GET", "/"))
      assert_status 200, connection.read_response
    end
  end

  def median_time(connection)
    times = Array.new(301) do
      elapsed do
        connection.write(request("GET", "/"))
        connection.read_response
      end
    end
    times.sort[150]
  end
end
