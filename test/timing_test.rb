# frozen_string_literal: true

# What the server knows of where time goes: Server-Timing, what is under way, processor time and memory.

require "support/case"

TIMING_APP = <<~'RUBY'
  def burn(seconds)
    over = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
    nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) >= over
  end

  def stuck
    sleep 0.01 until File.exist?("go-on")
  end

  run lambda { |env|
    case env["PATH_INFO"]
    when "/mixed" then sleep 0.05; burn 0.02
    when "/burn" then burn 0.1
    when "/stuck" then stuck
    when "/own" then next [200, { "server-timing" => "db;dur=1" }, ["own"]]
    when "/stream"
      next [200, {}, Enumerator.new { |parts| 3.times { |n| sleep 0.1; parts << n.to_s } }]
    end
    [200, { "content-type" => "text/plain" }, ["ok"]]
  }
RUBY

class TimingCase < Case
  ASKS = { "Firebrick-Timing" => "1" }.freeze

  def setup
    firebrick_only
  end

  # The stages of the server's own Server-Timing field in milliseconds; nil when there is none.
  def stages(response)
    field = response.all("server-timing").find { |value| value.empty? || value.start_with?("queue;") }
    field&.scan(/(\w+);dur=([0-9.]+)/)&.to_h { |name, ms| [name.to_sym, Float(ms)] }
  end

  def knows_gvl?
    version = `#{ENV.fetch("RUBY", "ruby")} -e 'print RUBY_VERSION'`
    Gem::Version.new(version) >= Gem::Version.new("3.2")
  end

  # Lets the stuck go on, and leaves nothing behind.
  def go_on(server)
    File.write(server.path("go-on"), "")
    wait_until("nothing under way") { told_by(server, "/requests").empty? }
    File.delete(server.path("go-on"))
  end

  # What the control socket answers.
  def told_by(server, target)
    socket = UNIXSocket.new(Dir[File.join(server.run_dir, "firebrick", "*.sock")].first)
    socket.write("GET #{target} HTTP/1.0\r\nHost: localhost\r\n\r\n")
    JSON.parse(socket.read.split("\r\n\r\n", 2).last)
  ensure
    socket&.close
  end
end

class ServerTimingTest < TimingCase
  shared_server app: TIMING_APP, files: { "public/file.txt" => "a file" }, threads: "4:4"

  it "says how long a request was in the app, and how much of that was work" do
    took = stages(get("/mixed", headers: ASKS))
    assert_operator took[:app], :>=, 70
    assert_operator took[:cpu], :>=, 20
    assert_operator took[:cpu], :<=, took[:app] - 49, "sleeping is no work"
    assert_operator took[:cpu] + took.fetch(:gvl, 0), :<=, took[:app] + 0.01
    assert_equal knows_gvl?, took.key?(:gvl)
  end

  it "says how long a request was queued" do
    own = start(app: TIMING_APP, threads: "1:1")
    first = connect(own).write(request("GET", "/stuck"))
    wait_until("the first request to be served") { told_by(own, "/requests").any? { |one| one["state"] == "app" } }
    second = connect(own).write(request("GET", "/", ASKS))
    wait_until("the second to wait") { told_by(own, "/requests").length == 2 }
    sleep 0.1
    go_on(own)
    took = stages(second.read_response("GET"))
    assert_operator took[:queue], :>=, 100
    assert_operator took[:app], :<, took[:queue]
    assert_equal 200, first.read_response("GET").status
  end

  it "says nothing unasked" do
    assert_nil get("/")["server-timing"]
    assert_nil get("/", headers: { "Firebrick-Timing" => "yes" })["server-timing"]
  end

  it "leaves the app's own field beside its own" do
    values = get("/own", headers: ASKS).all("server-timing")
    assert_equal 2, values.length
    assert_includes values, "db;dur=1"
    assert_equal "db;dur=1", get("/own")["server-timing"]
  end

  it "tells of a stream up to its head" do
    took = stages(get("/stream", headers: ASKS))
    assert_operator took[:queue], :>=, 0
    assert_operator took[:app], :<, 300
  end

  it "is empty for a file" do
    response = get("/file.txt", headers: ASKS)
    assert_equal "a file", response.body
    assert_equal "", response["server-timing"]
  end

  it "does not answer clients that a proxy on this machine speaks for" do
    assert_nil get("/", headers: ASKS.merge("X-Forwarded-For" => "192.0.2.1"))["server-timing"]
  end

  it "answers nobody, or everybody, when it is told to" do
    off = start(app: TIMING_APP, args: %w[--server-timing off])
    assert_nil get("/", to: off, headers: ASKS)["server-timing"]
    always = start(app: TIMING_APP, settings: { server_timing: "always" })
    refute_nil stages(get("/", to: always, headers: ASKS.merge("X-Forwarded-For" => "192.0.2.1")))
  end

  it "does not answer another machine" do
    address = Socket.ip_address_list.find { |one| one.ipv4? && !one.ipv4_loopback? } or skip "this machine has no address but loopback"
    own = start(app: TIMING_APP, binds: ["tcp://#{address.ip_address}:0"])
    assert_nil get("/", to: own, headers: ASKS)["server-timing"]
    always = start(app: TIMING_APP, binds: ["tcp://#{address.ip_address}:0"], args: %w[--server-timing always])
    assert_operator stages(get("/", to: always, headers: ASKS))[:app], :>, 0
  end

  it "shows threads that wait for each other's lock" do
    skip "Ruby tells it since 3.2" unless knows_gvl?
    waiting = Array.new(4) { connect.write(request("GET", "/burn", ASKS)) }
    took = waiting.map { |one| stages(one.read_response("GET")) }
    assert_operator took.map { |one| one[:gvl] }.max, :>=, 100, "four threads of 100 ms each share one lock"
  end
end

class InFlightTest < TimingCase
  def stuck(count, **options)
    own = start(app: TIMING_APP, **options)
    clients = Array.new(count) { |n| connect(own).write(request("GET", "/stuck?n=#{n}")) }
    wait_until("#{count} requests") { told_by(own, "/requests").length == count }
    yield own
    go_on(own)
    clients.each { |client| assert_equal 200, client.read_response("GET").status }
  end

  it "shows requests with their Ruby line, the oldest first" do
    stuck(2, threads: "3:3") do |own|
      sleep 0.2
      late = connect(own).write(request("GET", "/stuck"))
      wait_until("a third request") { told_by(own, "/requests").length == 3 }
      told = told_by(own, "/requests?backtraces")
      assert_equal [["GET", "/stuck", "app", 0]], told.map { |one| one.values_at("method", "path", "state", "worker") }.uniq
      assert_equal [0, 1, 2], told.map { |one| one["thread"] }.sort
      told.each_cons(2) { |older, newer| assert_operator older["age_ms"], :>=, newer["age_ms"] }
      assert_operator told.first["age_ms"], :>=, 200
      told.each { |one| assert_match(/\Aconfig\.ru:7:in .*stuck/, one["backtrace"].find { |line| line.include?("stuck") }) }
      go_on(own)
      assert_equal 200, late.read_response("GET").status
    end
  end

  it "shows what no thread has taken up as queued, and as many as were asked for" do
    stuck(3, threads: "1:1") do |own|
      told = told_by(own, "/requests")
      assert_equal(%w[app queued queued], told.map { |one| one["state"] })
      assert_nil told.last["thread"]
      assert_nil told.first["backtrace"]
      assert_operator told.last["queue_ms"], :>, 0
      assert_equal(["app"], told_by(own, "/requests?limit=1").map { |one| one["state"] })
    end
  end

  it "says null when the worker cannot tell, and goes on" do
    # Hashing keeps the lock to itself, and nothing interrupts it.
    app = <<~'RUBY'
      run lambda { |env|
        "hog".crypt("$6$rounds=9000000$saltsalt") if env["PATH_INFO"] == "/hog"
        [200, {}, ["done"]]
      }
    RUBY
    own = start(app: app, threads: "2:2")
    client = connect(own, deadline: 120).write(request("GET", "/hog"))
    wait_until("a request under way") { told_by(own, "/requests").any? { |one| one["state"] == "app" } }
    told = told_by(own, "/requests?backtraces")
    assert_equal ["app", nil], told.first.values_at("state", "backtrace")
    assert_equal "done", client.read_response("GET").body
    assert_equal "done", get("/", to: own).body
  end

  it "has nothing to show for a static site" do
    own = start(files: { "public/index.html" => "home", "static.json" => '{"root": "public"}' }, workers: nil, threads: nil)
    assert_equal "home", get("/", to: own).body
    assert_empty told_by(own, "/requests?backtraces")
  end
end

class CostTest < TimingCase
  it "knows what the server takes and may take" do
    own = start(app: TIMING_APP, workers: 2)
    before = own.stats
    20.times { get("/burn", to: own) }
    told = own.stats
    assert_operator told["rss_bytes"], :>=, 1 << 20
    assert_operator told["cores"], :>, 0
    assert_operator told["memory_limit_bytes"], :>, told["rss_bytes"]
    assert_operator told["cpu_ms"], :>=, before["cpu_ms"]
    assert_operator told["workers"].sum { |worker| worker["cpu_ms"] }, :>=, 1_900
    told["workers"].each do |worker|
      assert_operator worker["rss_bytes"], :>=, worker["pss_bytes"]
      assert_equal 0, worker["waiting"]
    end
  end

  it "samples processor time, and measures what asks for it" do
    own = start(app: TIMING_APP)
    10.times { get("/burn", to: own, headers: ASKS) }
    told = own.stats
    assert_operator told["app_cpu_ms"]["count"], :>=, 10
    assert_operator told["app_cpu_ms"]["p50"], :>=, 99
    assert_equal knows_gvl? ? told["app_cpu_ms"]["count"] : 0, told["gvl_ms"]["count"]
    500.times { get("/", to: own) }
    sampled = own.stats["app_cpu_ms"]["count"] - told["app_cpu_ms"]["count"]
    assert_includes 5..80, sampled, "one in sixteen"
  end
end
