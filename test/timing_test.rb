# frozen_string_literal: true

# Times and resources that the server reports: Server-Timing, requests in progress, CPU time and memory.

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
    when "/share" then burn 0.25
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

  # The stages of the server's own Server-Timing field in milliseconds; nil without the field.
  def stages(response)
    field = response.all("server-timing").find { |value| value.empty? || value.start_with?("queue;") }
    field&.scan(/(\w+);dur=([0-9.]+)/)&.to_h { |name, ms| [name.to_sym, Float(ms)] }
  end

  def knows_gvl?
    version = `#{ENV.fetch("RUBY", "ruby")} -e 'print RUBY_VERSION'`
    Gem::Version.new(version) >= Gem::Version.new("3.2")
  end

  # Releases the stuck requests, and removes the file.
  def release(server)
    File.write(server.path("go-on"), "")
    wait_for_requests(0, on: server)
    File.delete(server.path("go-on"))
  end
end

# Quiet, because it compares the server's times with those that the app has waited and computed.
class ServerTimingTest < TimingCase
  quiet!

  shared_server app: TIMING_APP, files: { "public/file.txt" => "a file" }, settings: { files: { public: "always" } }, threads: "4:4"

  it "reports how long a request was in the app, and its CPU time" do
    took = stages(get("/mixed", headers: ASKS))
    assert_operator took[:app], :>=, 70
    assert_operator took[:cpu], :>=, 20
    assert_operator took[:cpu], :<=, took[:app] - 49, "sleeping takes no CPU time"
    assert_operator took[:cpu] + took.fetch(:gvl, 0), :<=, took[:app] + 0.01
    assert_equal knows_gvl?, took.key?(:gvl)
  end

  it "reports how long a request was queued" do
    own = start(app: TIMING_APP, threads: "1:1", fibers: 1)
    first = connect(own).write(request("GET", "/stuck"))
    wait_until("the first request to be served") { own.control("/requests").any? { |one| one["state"] == "app" } }
    second = connect(own).write(request("GET", "/", ASKS))
    wait_for_requests(2, on: own)
    sleep 0.1
    release(own)
    took = stages(second.read_response("GET"))
    assert_operator took[:queue], :>=, 100
    assert_operator took[:app], :<, took[:queue]
    assert_equal 200, first.read_response("GET").status
  end

  it "sends nothing unless requested" do
    assert_nil get("/")["server-timing"]
    assert_nil get("/", headers: { "Firebrick-Timing" => "yes" })["server-timing"]
  end

  it "keeps the app's own field" do
    values = get("/own", headers: ASKS).all("server-timing")
    assert_equal 2, values.length
    assert_includes values, "db;dur=1"
    assert_equal "db;dur=1", get("/own")["server-timing"]
  end

  it "covers a stream up to its head" do
    took = stages(get("/stream", headers: ASKS))
    assert_operator took[:queue], :>=, 0
    assert_operator took[:app], :<, 300
  end

  it "is empty for a file" do
    response = get("/file.txt", headers: ASKS)
    assert_equal "a file", response.body
    assert_equal "", response["server-timing"]
  end

  it "ignores clients behind a proxy on this machine" do
    assert_nil get("/", headers: ASKS.merge("X-Forwarded-For" => "192.0.2.1"))["server-timing"]
  end

  it "is sent to no client, or to every client, if configured" do
    off = start(app: TIMING_APP, args: %w[--server-timing off])
    assert_nil get("/", to: off, headers: ASKS)["server-timing"]
    always = start(app: TIMING_APP, settings: { server_timing: "always" })
    refute_nil stages(get("/", to: always, headers: ASKS.merge("X-Forwarded-For" => "192.0.2.1")))
  end

  it "ignores clients on other machines" do
    address = Socket.ip_address_list.find { |one| one.ipv4? && !one.ipv4_loopback? } or skip "this machine has no address but loopback"
    own = start(app: TIMING_APP, binds: ["tcp://#{address.ip_address}:0"])
    assert_nil get("/", to: own, headers: ASKS)["server-timing"]
    always = start(app: TIMING_APP, binds: ["tcp://#{address.ip_address}:0"], args: %w[--server-timing always])
    assert_operator stages(get("/", to: always, headers: ASKS))[:app], :>, 0
  end

  it "shows threads that wait for the GVL" do
    skip "needs Ruby 3.2" unless knows_gvl?
    waiting = Array.new(4) { connect.write(request("GET", "/share", ASKS)) }
    took = waiting.map { |one| stages(one.read_response("GET")) }
    # Ruby gives each thread 100 ms at a time. The wait of a thread before it has its request does not count.
    assert_operator took.map { |one| one[:gvl] }.max, :>=, 100, "four threads of 250 ms each share one lock"
  end
end

class InFlightTest < TimingCase
  parallel!

  def stuck(count, **options)
    own = start(app: TIMING_APP, **options)
    # One after another, because the order of simultaneous requests differs between front threads.
    clients = Array.new(count) do |n|
      connect(own).write(request("GET", "/stuck?n=#{n}")).tap { wait_for_requests(n + 1, on: own) }
    end
    yield own
    release(own)
    clients.each { |client| assert_equal 200, client.read_response("GET").status }
  end

  it "lists requests with their Ruby line, the oldest first" do
    stuck(2, threads: "3:3") do |own|
      sleep 0.2
      late = connect(own).write(request("GET", "/stuck"))
      wait_until("all to be in the app") { own.control("/requests").count { |one| one["state"] == "app" } == 3 }
      listed = own.control("/requests?backtraces")
      assert_equal [["GET", "/stuck", "app", 0]], listed.map { |one| one.values_at("method", "path", "state", "worker") }.uniq
      # A waiting fiber has no thread.
      assert_equal Server.fibers? ? [nil] : [0, 1, 2], listed.map { |one| one["thread"] }.uniq.sort
      listed.each_cons(2) { |older, newer| assert_operator older["age_ms"], :>=, newer["age_ms"] }
      assert_operator listed.first["age_ms"], :>=, 200
      listed.each { |one| assert_match(/\Aconfig\.ru:7:in .*stuck/, one["backtrace"].find { |line| line.include?("stuck") }) }
      release(own)
      assert_equal 200, late.read_response("GET").status
    end
  end

  it "lists requests that no thread has taken as queued, up to the limit" do
    stuck(3, threads: "1:1", fibers: 1) do |own|
      wait_until("a request in the app") { own.control("/requests").any? { |one| one["state"] == "app" } }
      listed = own.control("/requests")
      assert_equal(%w[app queued queued], listed.map { |one| one["state"] })
      assert_nil listed.last["thread"]
      assert_nil listed.first["backtrace"]
      assert_operator listed.last["queue_ms"], :>, 0
      assert_equal(["app"], own.control("/requests?limit=1").map { |one| one["state"] })
    end
  end

  it "reports null when the worker cannot respond, and recovers" do
    # Hashing keeps the GVL and cannot be interrupted.
    app = <<~'RUBY'
      run lambda { |env|
        "hog".crypt("$6$rounds=9000000$saltsalt") if env["PATH_INFO"] == "/hog"
        [200, {}, ["done"]]
      }
    RUBY
    own = start(app: app, threads: "2:2", settings: { timeouts: { worker: 120 } })
    client = connect(own, deadline: 120).write(request("GET", "/hog"))
    wait_until("a request under way") { own.control("/requests").any? { |one| one["state"] == "app" } }
    listed = own.control("/requests?backtraces")
    assert_equal ["app", nil], listed.first.values_at("state", "backtrace")
    assert_equal "done", client.read_response("GET").body
    assert_equal "done", get("/", to: own).body
  end

  it "lists nothing for a static site" do
    own = start(files: { "public/index.html" => "home", "static.json" => '{"root": "public"}' }, workers: nil, threads: nil)
    assert_equal "home", get("/", to: own).body
    assert_empty own.control("/requests?backtraces")
  end
end

# CPU time and memory of the test's own server, on which other tests have no influence.
class CostTest < TimingCase
  parallel!

  it "reports the server's usage and limits" do
    own = start(app: TIMING_APP, workers: 2)
    before = own.stats
    20.times { get("/burn", to: own) }
    stats = own.stats
    assert_operator stats["rss_bytes"], :>=, 1 << 20
    assert_operator stats["cores"], :>, 0
    assert_operator stats["memory_limit_bytes"], :>, stats["rss_bytes"]
    assert_operator stats["cpu_ms"], :>=, before["cpu_ms"]
    assert_operator stats["workers"].sum { |worker| worker["cpu_ms"] }, :>=, 1_900
    stats["workers"].each do |worker|
      assert_operator worker["rss_bytes"], :>=, worker["pss_bytes"]
      assert_equal 0, worker["waiting"]
    end
  end

  it "samples CPU time, and measures requests that ask for it" do
    own = start(app: TIMING_APP)
    10.times { get("/burn", to: own, headers: ASKS) }
    stats = own.stats
    assert_operator stats["app_cpu_ms"]["count"], :>=, 10
    assert_operator stats["app_cpu_ms"]["p50"], :>=, 99
    assert_equal knows_gvl? ? stats["app_cpu_ms"]["count"] : 0, stats["gvl_ms"]["count"]
    500.times { get("/", to: own) }
    sampled = own.stats["app_cpu_ms"]["count"] - stats["app_cpu_ms"]["count"]
    assert_includes 5..80, sampled, "one in sixteen"
  end
end
