# frozen_string_literal: true

# `slo = "p95 < 200ms"`: workers and threads follow an objective of response times.

require "json"
require "support/case"
require "support/load"

module Shaping
  # An app that waits or computes, and tells how many of its requests ran at the same time.
  APP = <<~'RUBY'
    text = { "content-type" => "text/plain" }
    now, most, lock = 0, 0, Mutex.new
    run lambda { |env|
      lock.synchronize { most = [most, now += 1].max }
      case env["PATH_INFO"]
      when "/wait" then sleep 0.02
      when "/compute"
        til = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.02
        nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) > til
      when "/stop" then sleep 2
      end
      begun = most
      lock.synchronize { now -= 1 }
      [200, text, [begun.to_s]]
    }
  RUBY

  def setup
    firebrick_only
  end

  def server(slo: "p95 < 100ms", workers: 1, threads: 1, shape: {}, **options)
    settings = { slo: slo, workers: workers, threads: threads, shape: shape }.compact
    start(app: APP, workers: nil, threads: nil, environment: "production", settings: settings, **options)
  end

  def shape(own) = own.control("/shape")

  def steps(own, verdict) = shape(own)["steps"].select { |step| step["verdict"] == verdict }

  def now_in_force(own) = shape(own).values_at("workers", "seats")

  def under_load(own, path, clients:)
    load = Load.new(own.address, clients: clients, path: path).start
    yield load
  ensure
    load&.stop
  end
end

class ShapeTest < Case
  parallel! slow: 100

  include Shaping

  it "gives an app that waits more threads until the objective holds, says why, and goes back afterwards" do
    own = server(shape: { workers: 1 })
    assert_equal [1, 1], now_in_force(own)
    out, _, code = own.command_line("shape", "--dir", own.dir)
    assert_equal 0, code
    assert_match(/\Aobjective p95 < 100ms  no requests in the last 10 s\nshape     1x1  workers 1(:1)?, requests at a time in each 1:64\n/, out)
    assert_match(/no step so far/, out)
    under_load(own, "/wait", clients: 16) do |load|
      wait_until("the objective to hold", within: 30) { now_in_force(own).last >= 8 && shape(own)["holds"] }
      assert_operator load.completed.last.body.to_i, :>=, 4, "requests run at the same time"
    end
    kept = steps(own, "kept")
    assert_match(%r{\Arequests waited \d+ ms \(p95\); the throughput grew: \d+/s before, \d+/s with it}, kept.first["why"])
    assert_equal "1x1", kept.first["from"]
    assert_operator kept.first["after"]["rate"], :>, kept.first["before"]["rate"]
    assert_logged(/shape: 1x1 → 1x\d+, kept: the throughput grew/, on: own)
    out, = own.command_line("shape", "--dir", own.dir)
    assert_match(%r{^kept +1x1 -> 1x\d+ .* ago +\d+/s}, out)
    json = JSON.parse(own.command_line("shape", "--dir", own.dir, "--json").first)
    assert_equal "p95 < 100ms", json["objective"]
    metrics = own.metrics
    assert_match(/^firebrick_slo_seconds 0\.1$/, metrics)
    assert_match(/^firebrick_shape_seats \d+$/, metrics)
    assert_match(/^firebrick_shape_steps_total\{verdict="kept"\} [1-9]/, metrics)
    seats = now_in_force(own).last
    wait_until("the shape of the start", within: 90) { now_in_force(own) == [1, 1] }
    assert_equal "1x#{seats}", steps(own, "shrunk").first["from"]
    count = shape(own)["steps"].size
    sleep 3
    assert_equal count, shape(own)["steps"].size
  end

  it "never begins a request whose client has gone" do
    own = server(shape: { workers: 1, threads: 1 })
    slow = connect(own).write(request("GET", "/stop"))
    wait_until("the request to run") { own.stats["workers"].sum { |worker| worker["busy_threads"] } == 1 }
    gone = connect(own).write(request("GET", "/wait"))
    wait_until("it to wait") { own.stats["queue"]["length"] == 1 }
    gone.close
    wait_until("it to leave the queue") { own.stats["queue"]["length"].zero? }
    slow.read_response
    assert_equal(1, own.stats["workers"].sum { |worker| worker["requests"] })
  end

  it "stays within its bounds and says so" do
    own = server(shape: { workers: 1, threads: "1:2" })
    under_load(own, "/wait", clients: 16) do
      wait_until("a reason", within: 30) { steps(own, "refused").any? }
      assert_equal [1, 2], now_in_force(own)
    end
    assert_match(/but 2 seats in each worker are the most that the settings allow/, steps(own, "refused").first["why"])
  end

  it "uses all fibers from the start, and works with workers in plain Ruby" do
    own = start(app: APP, workers: nil, threads: nil, environment: "production",
                settings: { slo: "p95 < 1s", workers: 1, threads: 1, fibers: 50 })
    assert_equal [1, 50], now_in_force(own)
    under_load(own, "/wait", clients: 20) { |load| wait_until("requests") { load.completed.size > 100 } }
    assert_empty shape(own)["steps"]
    pure = server(env: { "FIREBRICK_PURE" => "1" }, shape: { workers: 1 })
    under_load(pure, "/wait", clients: 16) do |load|
      wait_until("threads", within: 30) { now_in_force(pure).last >= 4 }
      wait_until("requests at the same time") { load.completed.last.body.to_i >= 2 }
    end
  end

  it "is off unless it is asked for, and names mistakes" do
    own = start(app: APP)
    assert_nil own.stats["shape"]
    out, err, code = own.command_line("shape", "--dir", own.dir)
    assert_equal [1, ""], [code, out]
    assert_match(/no objective: set slo, for example slo = "p95 < 200ms"/, err)
    [["p90 < 1s", /expected p50, p95 or p99/], ["fast", /expected "p50 < TIME"/], ["p95 < 2h", /from 1ms to 1h/]].each do |slo, said|
      _, err, code = own.command_line("check", own.dir, "--slo", slo)
      assert_equal 1, code, slo
      assert_match said, err
    end
  end
end

# Beside other tests the processor is not what the app finds alone.
class ShapeLoadTest < Case
  quiet! 30

  include Shaping

  it "gives an app that computes no threads" do
    own = server(shape: { workers: 1 })
    under_load(own, "/compute", clients: 12) do
      wait_until("a reason", within: 30) { steps(own, "refused").any? }
      sleep 3
    end
    wait_until("the end of a trial", within: 20) { now_in_force(own) == [1, 1] }
    assert_empty steps(own, "kept")
    why = steps(own, "refused").map { |step| step["why"] }.join("\n")
    assert_match(/more threads would not help|of the CPU is idle|most that the settings allow/, why)
  end

  it "refuses what would miss the objective under overload, and serves all others in time" do
    own = server(slo: "p95 < 300ms", shape: { workers: 1, threads: 1 })
    under_load(own, "/wait", clients: 60) do |load|
      wait_until("overload", within: 30) { steps(own, "overload").any? }
      # The requests that waited before the limit.
      sleep 3
      since = now
      sleep 4
      recent = load.completed.select { |one| one.sent_at > since }
      served = recent.select { |one| one.status == 200 }
      assert_equal [200, 503], recent.map(&:status).uniq.sort
      assert_operator served.size, :>, 40, "of 200 that a worker can serve"
      late = served.count { |one| one.received_at - one.sent_at > 0.6 }
      assert_operator late, :<, served.size / 4
    end
    assert_match(/missed the objective, and no trial is left/, steps(own, "overload").first["why"])
    wait_until("relief", within: 30) { steps(own, "relieved").any? && shape(own)["wait_limit_ms"].nil? }
    assert_equal 200, get("/wait", to: own).status
  end
end
