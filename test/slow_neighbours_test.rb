# frozen_string_literal: true

# A slow request must not delay fast ones, whether it sleeps or keeps the GVL.

require "support/case"
require "support/load"

SLOW_NEIGHBOURS_APP = <<~'RUBY'
  require "fiddle"
  usleep = Fiddle::Function.new(Fiddle.dlopen(nil)["usleep"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
  text = { "content-type" => "text/plain" }
  # Until the test says so.
  released = -> { sleep 0.05 until File.exist?("release") }
  slow = Class.new do
    def initialize(&close) = @close = close
    def each = yield("fine")
    def close = @close.call
  end

  run lambda { |env|
    case env["PATH_INFO"]
    when "/sleep" then released.call
    when "/lock" then usleep.call(4_000_000)
    when "/close" then next [200, text.dup, slow.new(&released)]
    when "/compute"
      # The request computes until /enough is requested, at most 20 s.
      $enough = false
      over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 20
      nil until $enough || Process.clock_gettime(Process::CLOCK_MONOTONIC) > over
      next [200, text.dup, [$enough ? "enough" : "too late"]]
    when "/enough" then $enough = true
    when "/finished" then env["rack.response_finished"] << ->(*) { released.call }
    end
    env["rack.after_reply"] << released if env["PATH_INFO"] == "/reply"
    [200, text.dup, ["fine"]]
  }
RUBY

# Alone, because it measures the duration of requests.
class SlowNeighboursTest < Case
  # Seconds that a fast request may take; one that has to wait takes as long as the slow one.
  BOUND = 1

  %w[/sleep /lock].each do |slow|
    it "serves 48 fast clients while one request is at #{slow}" do
      firebrick_only
      own = start(workers: 2, threads: "1:1", app: SLOW_NEIGHBOURS_APP, settings: { timeouts: { worker: 30 } })
      3.times do
        load = Load.new(own.address, clients: 48, path: "/fast").start
        wait_until("load") { load.completed.size > 1000 }
        stuck = connect(own).write(request("GET", slow))
        sleep 2
        load.stop
        File.write(own.path("release"), "")
        assert_status 200, stuck.read_response
        File.unlink(own.path("release"))
        assert_empty load.errors
        assert_equal [200], load.completed.map(&:status).uniq
        assert_operator load.completed.map { |one| one.received_at - one.sent_at }.max, :<, BOUND
      end
    end
  end
end

# Tests that measure no time: a neighbour that waits would wait for ever.
class BesideOneRequestTest < Case
  parallel!

  %w[2:2 5:5].each do |threads|
    it "gives requests their turn beside one that computes and never lets go, in the only worker (#{threads} threads)" do
      firebrick_only
      own = start(workers: 1, threads: threads, app: SLOW_NEIGHBOURS_APP)
      computing = connect(own, deadline: 60).write(request("GET", "/compute"))
      wait_for_requests(1, on: own)
      3.times do
        fast = Array.new(4) { connect(own, deadline: 60).write(request("GET", "/fast")) }
        fast.each { |one| assert_equal "fine", one.read_response.body }
      end
      assert_status 200, get("/enough", to: own)
      assert_equal "enough", computing.read_response.body
    end
  end

  it "serves each request once, even if it moves to another worker" do
    firebrick_only
    own = start(workers: 2, threads: "1:1", settings: { timeouts: { worker: 30 } }, app: <<~'RUBY')
      run lambda { |env|
        File.write("seen.log", "#{env['QUERY_STRING']}\n", mode: "a")
        sleep 0.03 if env["QUERY_STRING"].to_i % 50 == 7
        [200, { "content-type" => "text/plain" }, [env["QUERY_STRING"]]]
      }
    RUBY
    number = Queue.new
    2000.times { |n| number << n }
    clients = Array.new(40) do
      connection = connect(own)
      Thread.new do
        while (n = number.pop(true) rescue nil)
          connection.write(request("GET", "/?#{n}"))
          assert_equal n.to_s, connection.read_response.body
        end
      end
    end
    clients.each(&:join)
    assert_equal (0...2000).to_a, File.readlines(own.path("seen.log")).map(&:to_i).sort
  end

  it "sends a response without waiting for the app's work after it" do
    firebrick_only
    own = start(workers: 1, threads: "1:1", app: SLOW_NEIGHBOURS_APP)
    %w[/close /finished /reply].each do |path|
      assert_equal "fine", get(path, to: own).body, "it comes before the work is allowed to end"
      released(own) { get("/fast", to: own) }
    end
  end

  it "sends the responses of a batch without waiting for the app's work after one of them" do
    firebrick_only
    own = start(workers: 1, threads: "1:1", app: SLOW_NEIGHBOURS_APP)
    200.times { get("/fast", to: own) }
    3.times do
      connections = Array.new(16) { connect(own) }
      connections.each_with_index { |connection, n| connection.write(request("GET", n == 8 ? "/close" : "/fast")) }
      assert_status 200, connections[8].read_response, "it comes before the work is allowed to end"
      released(own) { connections.each_with_index { |connection, n| assert_status 200, connection.read_response unless n == 8 } }
    end
  end

  private

  # Lets the app's work end, and makes the next one wait again.
  def released(own)
    File.write(own.path("release"), "")
    yield
    File.unlink(own.path("release"))
  end
end
