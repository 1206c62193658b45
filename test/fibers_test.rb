# frozen_string_literal: true

# Requests on fibers, as seen by clients and operators.

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
      when "/stubborn" # what ends waits is kept out, or another wait begins
        begin
          sleep
        rescue Firebrick::ClientGone
          sleep
        end
      when "/transfer" # the request's own fiber is not entered any more
        Fiber.new { sleep }.transfer
      when "/deep"
        deep = ->(levels) { levels.zero? ? 0 : 1 + deep.(levels - 1) }
        levels = begin deep.(env["QUERY_STRING"].to_i); rescue SystemStackError => e; e.class; end
        [200, text, [levels.to_s]]
      when "/stack" then [200, text, [`env`.lines.grep(/FIBER/).join]]
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
    assert_includes own.metrics, "firebrick_worker_blocking_calls_total 1\n"
    Process.kill("KILL", worker["pid"])
    wait_until("another worker", within: 30) { own.stats["workers"].any? { |one| one["state"] == "ready" && one["pid"] != worker["pid"] } }
    assert_includes own.metrics, "firebrick_worker_blocking_calls_total 1\n"
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

  # Occupies all fibers with requests that do not end.
  def assert_replaced(path, method: "GET", fibers: 5, **more)
    own = server_with(fibers, more: { timeouts: { worker: 3 }, **more })
    pid = get("/pid", to: own).body
    clients = Array.new(5) { connect(own, deadline: 60).write(request(method, path, { "Content-Length" => 0 })) }
    clients.each { |one| assert_status 504, one.read_response }
    wait_until("another worker", within: 30) { (response = get("/pid", to: own)).status == 200 && response.body != pid }
    wait_until("the worker to be killed", within: 30) { !Processes.alive?(pid.to_i) }
    wait_until("the log tells") { own.stderr.match?(/worker \d .*was stuck for more than timeouts\.worker \(3 s\) by #{method} #{path}/) }
  end

  it "replaces a worker whose fibers are lost, as one whose threads are" do
    assert_replaced("/stubborn")
  end

  it "does so for requests that change something, whose waits do not end" do
    assert_replaced("/forever", method: "POST")
  end

  it "does so where the app has left the request's fiber for one of its own" do
    assert_replaced("/transfer")
  end

  it "does so while other fibers are free" do
    assert_replaced("/stubborn", fibers: 50)
  end

  it "does so with fibers for some paths" do
    assert_replaced("/stubborn", fiber_paths: ["/stubborn", "/pid"])
  end

  it "lets the others of such a worker finish" do
    own = server_with(10, more: { timeouts: { worker: 3 } })
    pid = get("/pid", to: own).body
    lost = connect(own, deadline: 60).write(request("GET", "/stubborn"))
    sleep 2
    slow = connect(own, deadline: 60).write(request("GET", "/hog?2.6"))
    assert_status 504, lost.read_response
    assert_equal pid, slow.read_response.body
    wait_until("the worker to be killed", within: 30) { !Processes.alive?(pid.to_i) }
  end

  it "gives fibers the stack that it is told to, and programs of the app what they would have" do
    assert_equal "SystemStackError", get("/deep?6000", to: server_with(10)).body
    own = server_with(10, more: { rack: { fiber_stack: "1MiB" } })
    assert_equal "6000", get("/deep?6000", to: own).body
    assert_empty get("/stack", to: own).body
  end

  # The middleware of the gem, reduced to what these tests need.
  RACK_TIMEOUT = <<~RUBY
    module Rack
      class Timeout
        def initialize(app, service_timeout: nil) = (@app, @service_timeout = app, service_timeout)

        def call(env)
          thread = Thread.current
          watch = Thread.new { sleep @service_timeout; thread.raise(RuntimeError, "too late") }
          @app.call(env)
        ensure
          watch.kill
        end
      end
    end
  RUBY
  USES = {
    "the stack" => "use Rack::Timeout, service_timeout: 5",
    "a class of the app" => "use Class.new(Rack::Timeout), service_timeout: 5",
    "a path" => "map('/slow') { use Rack::Timeout, service_timeout: 5; run ->(_) { [200, {}, []] } }",
    "an app of a cascade" => "map('/both') { run Rack::Cascade.new([Rack::Timeout.new(->(_) { [404, {}, []] }), ->(_) { [200, {}, []] }]) }"
  }.freeze

  it "refuses rack-timeout where the app uses it, because it would end other requests, and names it in check" do
    USES.each do |where, line|
      out, _, code = checked("#{RACK_TIMEOUT}\n#{line}")
      assert_equal 0, code, where
      assert_match(/could not be used, because of rack-timeout/, out, where)
      _, err, code = checked("#{RACK_TIMEOUT}\n#{line}", fibers: 10)
      assert_equal 1, code, where
      assert_match(/fibers = 10: rack-timeout ends a request by Thread#raise.*timeouts\.worker/, err, where)
    end
  end

  it "takes an app that has rack-timeout loaded and not among its middleware, and passes it by where a request reaches it" do
    out, _, code = checked(RACK_TIMEOUT)
    assert_equal 0, code
    assert_match(/They could be used.*rack-timeout +waits +loaded, and not among the middleware/m, out)
    own = server_with(10, app: <<~RUBY)
      #{RACK_TIMEOUT}
      HIDDEN = lambda do |env|
        inner = ->(_) { sleep env["QUERY_STRING"].to_f; [200, {}, ["passed"]] }
        Rack::Timeout.new(inner, service_timeout: 0.1).call(env)
      end
      map("/hidden") { run HIDDEN }
      #{APP}
    RUBY
    clients = %w[0.5 0.6 0.05].map { |time| connect(own).write(request("GET", "/hidden?#{time}")) }
    clients.each { |client| assert_equal "passed", client.read_response.body }
    assert_equal 1, own.stderr.scan("rack-timeout is passed by").length
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

  # The output of `check` for an app that begins with `first`, without its settings.
  def checked(first, fibers: nil)
    own = Server.new(app: "#{first}\n#{APP}", settings: { threads: 1, fibers: fibers }.compact)
    out, err, code = own.command_line("check", own.dir)
    [out[/^The app loads.*/m].to_s, err, code]
  ensure
    FileUtils.remove_entry(own.base)
  end

  def with(gem)
    skip "#{gem} is not installed" unless system("ruby", "-r#{gem}", "-e", "", err: File::NULL)
    "require '#{gem}'"
  end

  it "tells in check what forbids fibers, while they are off" do
    out, err, code = checked(with("sequel"))
    assert_equal 0, code, err
    assert_match(/^Fibers are off, and could not be used, because of Sequel /, out)
    assert_match(/^  Sequel +forbids fibers +.*Add where the app loads it: Sequel\.extension :fiber_concurrency$/, out)
    out, = checked("#{with('sequel')}; Sequel.extension :fiber_concurrency")
    assert_match(/^Fibers are off\. They could be used \(/, out)
    assert_match(/^  Sequel +waits +/, out)
  end

  it "tells in check which libraries wait and which stop the thread, with fibers and without" do
    libraries = "#{with('redis')}; #{with('sqlite3')}; require 'net/http'"
    { nil => /^Fibers are off\. They could be used, but a wait in sqlite3 stops/, 20 => /^20 fibers in each thread, but a wait in sqlite3 stops/ }.each do |fibers, verdict|
      out, err, code = checked(libraries, fibers: fibers)
      assert_equal 0, code, err
      assert_match verdict, out
      assert_equal(%w[sqlite3 Ruby redis Net::HTTP], out.lines.grep(/^  /).map { |line| line.split.first })
      assert_match(/^  sqlite3 +stops the thread +.*set threads to 2 or more/, out)
      assert_match(/^  redis +waits +/, out)
      assert_equal 1, out.scan("reads and writes files with the thread").size
    end
  end

  # Stand-ins for libraries that the check inspects and that are not installed here.
  RAILS = <<~RUBY
    module ActiveRecord
      def self.version = Gem::Version.new("7.1.3")
      class Base
        def self.connection_db_config = Struct.new(:pool, :checkout_timeout).new(5, 2.5)
      end
    end
    module ActiveSupport
      module IsolatedExecutionState
        def self.isolation_level = %s
      end
    end
  RUBY

  it "knows drivers that stop the thread, and versions that do" do
    out, = checked('module Mysql2; class Client; end; end; module PG; VERSION = "1.2.3"; class Connection; end; end')
    assert_match(/^Fibers are off\. They could be used, but a wait in pg 1\.2\.3, mysql2 stops/, out)
    assert_match(/^  mysql2 +stops the thread +waits for results with the thread/, out)
    assert_match(/^  pg 1\.2\.3 +stops the thread +.*take 1\.3 or later$/, out)
  end

  it "knows what Rails needs" do
    out, = checked(format(RAILS, ":thread"))
    assert_match(/could not be used, because of Active Record.*isolation_level = :fiber/m, out)
    _, err, code = checked(format(RAILS, ":thread"), fibers: 10)
    assert_equal 1, code
    assert_match(%r{fibers = 10: .*Add to config/application\.rb: config\.active_support\.isolation_level = :fiber, or set fibers to "off"}, err)
    out, = checked(format(RAILS, ":fiber"), fibers: 10)
    assert_match(/^10 fibers in each thread, but requests wait for one another in Active Record/, out)
    assert_match(/pool has 5 connections for 10 fibers: .*raise after 2\.5 s \(pool and checkout_timeout in config/, out)
    out, = checked(format(RAILS, ":fiber"), fibers: 5)
    assert_match(/^5 fibers in each thread \(/, out)
  end

  it "warns of the same at the start, with fibers only" do
    skip "the flag of TEST_FIBERS overrides the setting" if ENV["TEST_FIBERS"]
    app = "#{with('sqlite3')}\n#{APP}"
    own = start(app: app, threads: "1:1", settings: { fibers: 10 })
    assert_match(/^\* fibers: sqlite3 reads and writes files with the thread/, own.stdout)
    assert_equal "stops", own.stats["libraries"].find { |one| one["name"] == "sqlite3" }["with_fibers"]
    refute_match(/sqlite3/, start(app: app, threads: "1:1").stdout)
  end

  it "counts fibers as seats in stats, top and plan" do
    skip "the flag of TEST_FIBERS overrides the setting" if ENV["TEST_FIBERS"]
    own = server_with(300, workers: 2)
    40.times.each_slice(20) { |slice| slice.map { Thread.new { get("/sleep?0.05", to: own) } }.each(&:join) }
    assert_equal([[300, 300], [300, 300]], own.stats["workers"].map { |worker| worker.values_at("threads_max", "fibers") })
    assert_match(%r{busy/fibers.*0/300}m, own.command_line("stats", own.dir).first)
    shown, = own.command_line("top", own.dir, "--once")
    assert_includes shown, "busy fibers"
    assert_includes shown, "0/300"
    sleep 1.2 # the time since the start counts from a second on
    out, err, code = own.command_line("plan", "--from", own.dir, "--rate", "10/s", "--cpu-time", "1ms", "--cores", "2", "--json")
    assert_equal 0, code, err
    answer = JSON.parse(out)["answers"].first
    assert_equal [2, 1, 300], answer["size"].values_at("workers", "threads", "fibers")
    # Two workers compute for 1 ms each: their 600 fibers do not increase that.
    assert_equal ["workers", 2], answer.values_at("limit", "servers")
    assert_in_delta 2_000, answer["instance_rate_per_s"], 1
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
