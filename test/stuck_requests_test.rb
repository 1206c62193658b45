# frozen_string_literal: true

# Requests that hold a worker longer than timeouts.worker: their responses, and those of the requests beside them.

require "support/case"

STUCK_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  more_time = ->(env, seconds) { env["firebrick.timeout"].extend(seconds) }
  # Until the test says so; what is asked for is the name of the file that says it.
  go_on = ->(env) { File.exist?("#{env["QUERY_STRING"]}.log") }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/pid" then [200, text, [Process.pid.to_s]]
    when "/stuck" then ENV.key?("TEST_FIBERS") ? (nil while true) : sleep # a fiber that waits does not hold its worker up
    when "/held"
      sleep 0.01 until go_on[env]
      [200, text, [Process.pid.to_s]]
    when "/once"
      more_time[env, 60]
      sleep 0.01 until go_on[env]
      [200, text, ["in time"]]
    when "/again"
      (more_time[env, 3]; sleep 0.1) until go_on[env]
      [200, text, ["in time"]]
    when "/too-late" then more_time[env, 1]; ENV.key?("TEST_FIBERS") ? (nil while true) : sleep
    when "/odd"
      answers = [-1, 1e9, nil, Float::NAN, "5"].map { |odd| more_time[env, odd] rescue $!.message }
      elsewhere = Thread.new { more_time[env, 1] rescue $!.message }.value
      [200, text, [[*answers, elsewhere].join("\n")]]
    else [200, text, ["fine"]]
    end
  }
RUBY

# Quiet: a time-out must not expire because other tests slow the machine down. Events that must come in order are
# seconds apart; the only comparison with the clock is that a time-out does not come early.
class StuckRequestsTest < Case
  quiet! 40

  def setup
    firebrick_only
  end

  def server_with_timeout(seconds, **options)
    start(app: STUCK_APP, settings: { timeouts: { worker: seconds } }, **options)
  end

  # Sends a request that the app holds until +go_on+. Returns when the app has it.
  def hold(own, path)
    before = own.control("/requests").length
    connect(own, deadline: 60).write(request("GET", path)).tap { wait_for_requests(before + 1, on: own) }
  end

  def go_on(own, name)
    File.write(own.path("#{name}.log"), "")
  end

  # Waits until the oldest request is that old.
  def wait_for_age(seconds, own)
    wait_until("a request of #{seconds} s", within: 60) { own.control("/requests").any? { |one| one["age_ms"] >= seconds * 1000 } }
  end

  # Runs a stuck request in a server with a time-out of two seconds, and in one with twice the time.
  def assert_noticed_in_time(own)
    twice = server_with_timeout(4, threads: "1:1")
    later = hold(twice, "/stuck")
    took = elapsed { assert_status 504, get("/stuck", to: own) }
    assert_operator took, :>=, 2
    assert_equal(["app"], twice.control("/requests").map { |one| one["state"] }, "it was sent before, and has twice the time")
    assert_status 504, later.read_response
  end

  it "answers 504 as soon as timeouts.worker is over" do
    assert_noticed_in_time(server_with_timeout(2, threads: "1:1"))
  end

  it "does so while its statistics are read all the time" do
    own = server_with_timeout(2, threads: "1:1")
    polling = true
    poller = Thread.new do
      own.stats && sleep(0.05) while polling
    end
    assert_noticed_in_time(own)
  ensure
    polling = false
    poller&.join
  end

  it "lets the other requests of the worker finish, and replaces it meanwhile" do
    own = server_with_timeout(4, threads: "3:3")
    old = get("/pid", to: own).body
    stuck = hold(own, "/stuck")
    wait_for_age(2, own)
    healthy = Array.new(2) { hold(own, "/held?go-on") }
    assert_status 504, stuck.read_response
    go_on(own, "go-on")
    assert_equal([old, old], healthy.map { |one| one.read_response.body })
    wait_until("a new worker") { get("/pid", to: own).body != old }
    wait_until("the backtrace") { own.stderr.match?(/config\.ru:8/) && own.stderr.include?("/stuck") }
    assert wait_until("the old worker to be killed") { !Processes.alive?(old.to_i) }
  end

  it "answers four slow requests beside a stuck one in the only worker" do
    own = server_with_timeout(5, workers: 1, threads: "5:5")
    old = get("/pid", to: own).body
    stuck = hold(own, "/stuck")
    wait_for_age(3, own)
    healthy = Array.new(4) { hold(own, "/held?go-on") }
    assert_status 504, stuck.read_response
    successor = wait_until("the successor") { (body = get("/pid", to: own).body) != old && body }
    assert Processes.alive?(old.to_i), "it has requests to finish"
    go_on(own, "go-on")
    assert_equal([[200, old]] * 4, healthy.map(&:read_response).map { |one| [one.status, one.body] })
    assert wait_until("the old worker to be killed") { !Processes.alive?(old.to_i) }
    assert_equal successor, get("/pid", to: own).body
  end

  it "gives a request that asks for it more time, and no other" do
    own = server_with_timeout(2, threads: "5:5")
    pid = get("/pid", to: own).body
    longer = %w[/once?first /again?first].map { |path| hold(own, path) }
    # Longer than the first time, and than an extension by /again.
    wait_for_age(5.5, own)
    go_on(own, "first")
    assert_equal(["in time"] * 2, longer.map { |one| one.read_response.body })
    assert_equal pid, get("/pid", to: own).body, "the worker was not stuck"
    extended = hold(own, "/again?second")
    assert_status 504, get("/too-late", to: own)
    go_on(own, "second")
    assert_equal "in time", extended.read_response.body, "the worker waits for it"
    wait_until("the worker to be killed") { !Processes.alive?(pid.to_i) }
  end

  it "refuses extensions that make no sense" do
    own = server_with_timeout(10)
    lines = get("/odd", to: own).body.lines(chomp: true)
    assert_equal 6, lines.size
    lines.first(5).each { |line| assert_match(/extend takes seconds from 0 to 86400, got /, line) }
    assert_match(/only be extended on the thread that serves the request/, lines.last)
  end

  it "gives the requests behind a stuck one to other workers" do
    own = server_with_timeout(3, threads: "1:1")
    # Fast requests, so that some are sent to the worker in advance.
    50.times { get("/", to: own) }
    stuck = hold(own, "/stuck")
    others = Array.new(5) { connect(own).write(request("GET", "/")) }
    assert_status 504, stuck.read_response
    others.each { |one| assert_equal "fine", one.read_response.body }
  end
end
