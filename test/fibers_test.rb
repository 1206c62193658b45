# frozen_string_literal: true

# Requests on fibers, as clients and operators see them.

require "support/case"
require "support/load"
require "support/reloading"

class FibersTest < Case
  parallel!
  include Reloading

  APP = <<~'RUBY'
    text = { "content-type" => "text/plain" }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/pid" then [200, text, [Process.pid.to_s]]
      when "/forever" then sleep
      when "/sleep" then sleep env["QUERY_STRING"].to_f; [200, text, ["slept"]]
      when "/hog"
        sleep 0.05
        over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + env["QUERY_STRING"].to_f
        nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > over
        [200, text, [Process.pid.to_s]]
      when "/locked"
        reader, writer = IO.pipe
        holder = fork { File.open(__FILE__) { |file| file.flock(File::LOCK_EX); writer.write("x"); writer.close; sleep 0.3 } }
        reader.read(1)
        File.open(__FILE__) { |file| file.flock(File::LOCK_EX) }
        Process.wait(holder)
        [200, text, ["mine"]]
      when "/stream"
        [200, text, ->(stream) { 3.times { |n| stream.write("#{n}\n"); sleep 0.1 }; stream.close }]
      else [200, text, ["fine"]]
      end
    }
  RUBY

  def server_with(fibers, **options)
    start(app: APP, threads: "1:1", settings: { fibers: fibers, **options.delete(:more).to_h }, **options)
  end

  it "serves more requests at a time than a worker has threads, and says so" do
    own = server_with(300)
    assert_includes own.stdout, "* 1 worker x 1:1 threads x 300 fibers"
    sleeping = Array.new(300) { connect(own).write(request("GET", "/sleep?3")) }
    wait_until("all are served") { own.stats["workers"].first["busy_threads"] == 300 }
    assert_equal 300, own.stats["workers"].first["threads_max"]
    sleeping.each { |one| assert_status 200, one.read_response }
  end

  it "names calls that stop a thread, and counts them" do
    own = server_with(10, more: { rack: { blocking_call: "50ms" } })
    get("/locked", to: own)
    wait_until("the log tells") { own.stderr.match?(%r{blocking call of \d+ ms in (File#)?flock \(\S+:\d+:in .*\), GET /locked}) }
    worker = own.stats["workers"].first
    assert_equal 1, worker["blocking_calls"]
    assert_operator worker["blocked_ms"], :>=, 50
    assert_includes metrics(own), %(firebrick_worker_blocking_calls_total{worker="0"} 1\n)
  end

  it "queues what exceeds the fibers" do
    own = server_with(2)
    clients = Array.new(7) { connect(own).write(request("GET", "/sleep?0.1")) }
    clients.each { |one| assert_status 200, one.read_response }
  end

  it "sends requests past a worker that computes" do
    own = server_with(50, workers: 2)
    hog = connect(own).write(request("GET", "/hog?5"))
    wait_until("the hog to run") { own.stats["workers"].any? { |worker| worker["busy_threads"] == 1 } }
    sleep 0.3
    pids = Array.new(30) { get("/pid", to: own).body }.uniq
    assert_equal 1, pids.length
    refute_equal pids.first, hog.read_response.body
  end

  it "prefers a worker that waits to one that computes in slices, though it has fewer free fibers" do
    own = server_with(50, workers: 2)
    hog = connect(own).write(request("GET", "/hog?6"))
    wait_until("the hog to run") { own.stats["workers"].any? { |worker| worker["busy_threads"] == 1 } }
    sleep 0.3
    sleeping = Array.new(10) { connect(own).write(request("GET", "/sleep?4")) }
    wait_until("the sleepers to wait") { own.stats["workers"].sum { |worker| worker["busy_threads"] } == 11 }
    pids = Array.new(30) { get("/pid", to: own).body }.uniq
    hogged = hog.read_response.body
    sleeping.each { |one| assert_status 200, one.read_response }
    refute_includes pids, hogged
  end

  it "answers 504 to a request that waits too long, and keeps the worker" do
    own = server_with(10, more: { timeouts: { worker: 2 } })
    pid = get("/pid", to: own).body
    assert_status 504, get("/forever", to: own)
    wait_until("the fiber to be free") { own.stats["workers"].first["busy_threads"].zero? }
    assert_equal pid, get("/pid", to: own).body
  end

  it "ends the wait of a client that leaves" do
    own = server_with(10)
    clients = Array.new(10) { connect(own).write(request("GET", "/forever")) }
    wait_until("all are served") { own.stats["workers"].first["busy_threads"] == 10 }
    clients.each(&:close)
    wait_until("none is served") { own.stats["workers"].first["busy_threads"].zero? }
    assert_status 200, get("/", to: own)
  end

  it "streams from fibers" do
    own = server_with(100)
    clients = Array.new(100) { connect(own).write(request("GET", "/stream")) }
    clients.each { |one| assert_equal "0\n1\n2\n", one.read_response.body }
  end

  it "reloads while requests sleep, and loses none" do
    own = server_with(50)
    sleeping = Array.new(20) { connect(own).write(request("GET", "/sleep?2")) }
    pid = get("/pid", to: own).body
    _, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, err
    wait_until("a new worker") { get("/pid", to: own).body != pid }
    sleeping.each { |one| assert_status 200, one.read_response }
  end

  it "refuses more fibers than the system has memory maps for, and says how many fit" do
    own = Server.new(app: APP, threads: "2:2", settings: { fibers: 60_000 })
    _, err, code = own.command_line("check", own.dir)
    assert_equal 1, code
    assert_match(/firebrick\.toml:\d+.*fibers.*(too many).*set fibers to \d+ or less/m, err)
  ensure
    FileUtils.remove_entry(own.base)
  end

  it "refuses Sequel without its extension, and names the line to add" do
    skip "Sequel is not installed" unless system("ruby", "-rsequel", "-e", "", err: File::NULL)
    own = Server.new(app: "require 'sequel'\n#{APP}", threads: "1:1", settings: { fibers: 10 }, exit_code: :any)
    own.launch
    refute_equal 0, own.wait_exit
    assert_includes own.stderr, "Sequel.extension :fiber_concurrency"
  ensure
    own&.finish
  end
end
