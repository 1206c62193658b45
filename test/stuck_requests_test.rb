# frozen_string_literal: true

# Requests that hold a worker longer than timeouts.worker: what they, and the requests beside them, get.

require "support/case"

STUCK_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/pid" then [200, text, [Process.pid.to_s]]
    when "/stuck" then sleep
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
