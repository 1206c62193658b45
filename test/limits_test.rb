# frozen_string_literal: true

# Each limit on size, number and time, and the status of a request that exceeds it.

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

  it "responds with 414 to a target that is too long" do
    refused 414, request("GET", "/refused#{'a' * 512}")
    refused 414, request("GET", "/refused?#{'a' * 512}")
  end

  it "responds with 414 before the end of an endless target" do
    refused 414, "GET /refused#{'a' * 1500}"
  end

  it "accepts a target of the maximum length" do
    assert_status 200, get("/#{'a' * 511}")
  end

  it "responds with 431 to a field that is too long" do
    refused 431, request("GET", "/refused", "X-Long" => "a" * 2048)
  end

  it "responds with 431 to fields that are too long in total" do
    refused 431, request("GET", "/refused", (1..15).to_h { |i| ["X-#{i}", "a" * 150] })
  end

  it "responds with 431 before the end of an endless field" do
    refused 431, "GET /refused HTTP/1.1\r\nHost: x\r\nX-Long: #{'a' * 4000}"
  end

  it "responds with 431 to too many fields" do
    refused 431, request("GET", "/refused", (1..20).to_h { |i| ["X-#{i}", "a"] })
  end

  it "accepts the maximum number of fields" do
    assert_status 200, get("/", headers: (1..19).to_h { |i| ["X-#{i}", "a"] })
  end

  it "refuses trailers that are too long" do
    refused [400, 413, 431], "POST /refused HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: #{'a' * 4000}\r\n\r\n"
  end

  it "refuses endless chunk extensions" do
    refused [400, 413, 431], "POST /refused HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;#{'a' * 100_000}"
  end

  it "responds with 413 to a declared body that is too large, without waiting for it" do
    refused 413, "POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n"
  end

  it "responds with 413, not 100, to a client that expects 100 Continue" do
    response = refused(413, "POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\nExpect: 100-continue\r\n\r\n")
    assert_empty response.interim
  end

  it "responds with 413 to a client that sends the whole body before it reads" do
    body = request("GET", "/refused") * 40_000
    refused 413, request("POST", "/refused", {}, body)
  end

  it "responds with 413 to a chunked body that grows too large" do
    refused 413, "POST /refused HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + "1000\r\n#{'a' * 4096}\r\n" * 3
  end

  it "responds with 413 to a chunk that declares too much" do
    refused 413, "POST /refused HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n"
  end

  it "accepts a body of the maximum size" do
    assert_equal "10000", post("/", "a" * 10_000)["x-size"]
    coded = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked("a" * 5000, "a" * 5000)
    assert_equal "10000", ask(coded)["x-size"]
  end

  it "closes a connection after the maximum number of requests, and announces it in the last response" do
    connection = connect
    5.times do |i|
      connection.write(request("GET", "/n#{i}"))
      assert_equal i == 4, connection.read_response.connection.include?("close"), "request #{i + 1}"
    end
    assert_closed connection
  end

  it "does not read beyond the last allowed request" do
    connection = connect
    connection.write((1..10).map { |i| request("GET", "/pipelined#{i}") }.join)
    5.times { |i| assert_equal "/pipelined#{i + 1}", connection.read_response.body }
    assert_closed connection
    refute_includes get("/seen").body, "/pipelined6"
  end

  it "responds with 501 to an unknown transfer coding" do
    refused 501, "POST /refused HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
  end

  it "responds with 505 to an unsupported version" do
    refused 505, "GET /refused HTTP/2.0\r\nHost: x\r\n\r\n"
  end

  it "responds with 417 to an unknown expectation" do
    assert_status 417, ask(request("POST", "/refused", { "Expect" => "wonders" }, "x"))
    refute_includes get("/seen").body, "refused"
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

  it "limits the time for the whole head, not for each byte" do
    connection = connect
    sender = Thread.new { connection.write_slowly("GET /refused HTTP/1.1\r\nX-A: #{'a' * 100}\r\n", pause: 0.1) }
    assert_status 408, connection.read_response
    assert_closed connection
  ensure
    sender&.kill
  end

  it "limits it for later requests of a connection, too" do
    connection = connect
    connection.write(request("GET", "/first") + "GET /refused HTTP/1.1\r\n")
    assert_status 200, connection.read_response
    assert_status 408, connection.read_response
    assert_closed connection
  end

  it "responds with 408 to a body that stops" do
    connection = connect
    connection.write("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nabc")
    assert_status 408, connection.read_response
    assert_closed connection
    refute_includes get("/seen").body, "/refused"
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

  it "accepts a body that takes longer than the timeout, if its rate is high enough" do
    connection = connect
    connection.write("POST /long HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n")
    20.times do
      connection.write("a" * 1000)
      sleep 0.1
    end
    response = connection.read_response
    assert_status 200, response
    assert_equal "20000", response["x-size"]
  end

  it "closes an idle connection silently" do
    connection = connect
    connection.write(request("GET", "/"))
    assert_status 200, connection.read_response
    assert_closed connection, within: 10
    refute connection.reset?
  end

  it "closes a connection on which no request arrives" do
    connection = connect
    assert connection.ended?(within: 10)
    assert_match(%r{\A(HTTP/1\.1 408 .*)?\z}m, connection.buffered)
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
