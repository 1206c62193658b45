# frozen_string_literal: true

# Requests that hold a worker longer than timeouts.worker: what they, and the requests beside them, get.

require "support/case"

STUCK_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/pid" then [200, text, [Process.pid.to_s]]
    when "/stuck" then sleep
    when "/slow" then sleep 3; [200, text, [Process.pid.to_s]]
    when "/late"
      sleep 0.5
      env["firebrick.timeout"].extend(4)
      sleep 2.3
      [200, text, ["in time"]]
    when "/again"
      5.times { env["firebrick.timeout"].extend(1.5); sleep 0.8 }
      [200, text, ["in time"]]
    when "/too-late" then env["firebrick.timeout"].extend(1); sleep
    when "/odd"
      answers = [-1, 1e9, nil, Float::NAN, "5"].map { |odd| env["firebrick.timeout"].extend(odd) rescue $!.message }
      elsewhere = Thread.new { env["firebrick.timeout"].extend(1) rescue $!.message }.value
      [200, text, [[*answers, elsewhere].join("\n")]]
    when "/healthy" then sleep 1.5; [200, text, [Process.pid.to_s]]
    else [200, text, ["fine"]]
    end
  }
RUBY

# Alone: it measures how soon a time-out is noticed.
class StuckRequestsTest < Case
  def server_with_timeout(seconds, **options)
    start(app: STUCK_APP, settings: { timeouts: { worker: seconds } }, **options)
  end

  it "answers 504 as soon as timeouts.worker is over" do
    firebrick_only
    own = server_with_timeout(2, threads: "1:1")
    started = now
    assert_status 504, get("/stuck", to: own)
    assert_in_delta 2.3, now - started, 0.5
  end

  it "does so while its statistics are read all the time" do
    firebrick_only
    own = server_with_timeout(2, threads: "1:1")
    polling = true
    poller = Thread.new do
      own.stats && sleep(0.05) while polling
    end
    started = now
    assert_status 504, get("/stuck", to: own)
    assert_operator now - started, :<, 4
  ensure
    polling = false
    poller&.join
  end

  it "lets the other requests of the worker finish, and replaces it meanwhile" do
    firebrick_only
    own = server_with_timeout(2, threads: "3:3")
    old = get("/pid", to: own).body
    stuck = connect(own).write(request("GET", "/stuck"))
    sleep 1.2
    healthy = Array.new(2) { connect(own).write(request("GET", "/healthy")) }
    assert_status 504, stuck.read_response
    assert_equal([old, old], healthy.map { |one| one.read_response.body })
    wait_until("a new worker") { get("/pid", to: own).body != old }
    wait_until("the backtrace") { own.stderr.match?(/config\.ru:5/) && own.stderr.include?("/stuck") }
    assert wait_until("the old worker to be killed") { !Processes.alive?(old.to_i) }
  end

  it "answers four slow requests beside a stuck one in the only worker" do
    firebrick_only
    own = server_with_timeout(4, workers: 1, threads: "5:5")
    old = get("/pid", to: own).body
    stuck = connect(own).write(request("GET", "/stuck"))
    wait_for_requests(1, on: own)
    sleep 2
    healthy = Array.new(4) { connect(own).write(request("GET", "/slow")) }
    assert_status 504, stuck.read_response
    successor = wait_until("the successor") { (body = get("/pid", to: own).body) != old && body }
    assert Processes.alive?(old.to_i), "it has requests to finish"
    assert_equal([[200, old]] * 4, healthy.map(&:read_response).map { |one| [one.status, one.body] })
    assert wait_until("the old worker to be killed") { !Processes.alive?(old.to_i) }
    assert_equal successor, get("/pid", to: own).body
  end

  it "gives a request that asks for it more time, and no other" do
    firebrick_only
    own = server_with_timeout(1, threads: "5:5")
    pid = get("/pid", to: own).body
    longer = %w[/late /again].map { |path| connect(own).write(request("GET", path)) }
    assert_equal(["in time"] * 2, longer.map { |one| one.read_response.body })
    assert_equal pid, get("/pid", to: own).body, "the worker was not stuck"
    extended = connect(own).write(request("GET", "/again"))
    assert_status 504, get("/too-late", to: own)
    assert_equal "in time", extended.read_response.body, "the worker waits for it"
    wait_until("the worker to be killed") { !Processes.alive?(pid.to_i) }
  end

  it "refuses extensions that make no sense" do
    firebrick_only
    own = server_with_timeout(10)
    lines = get("/odd", to: own).body.lines(chomp: true)
    assert_equal 6, lines.size
    lines.first(5).each { |line| assert_match(/extend takes seconds from 0 to 86400, got /, line) }
    assert_match(/only be extended on the thread that serves the request/, lines.last)
  end

  it "gives the requests behind a stuck one to other workers" do
    firebrick_only
    own = server_with_timeout(3, threads: "1:1")
    # Fast requests, so that some are handed to the worker in advance.
    50.times { get("/", to: own) }
    stuck = connect(own).write(request("GET", "/stuck"))
    sleep 0.2
    others = Array.new(5) { connect(own).write(request("GET", "/")) }
    assert_status 504, stuck.read_response
    others.each { |one| assert_equal "fine", one.read_response.body }
  end
end
