# frozen_string_literal: true

# `slo = "p95 < 200ms"`: workers and threads follow an objective of response times.

require "json"
require "support/case"
require "support/load"
require "support/upgrading"

module Shaping
  # An app that waits or computes, and tells how many of its requests ran at the same time.
  WAITING_APP = <<~'RUBY'
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
    start(app: WAITING_APP, workers: nil, threads: nil, environment: "production", settings: settings, **options)
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
    own = start(app: WAITING_APP, workers: nil, threads: nil, environment: "production",
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
    own = start(app: WAITING_APP)
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

# The objective of a running server comes, changes and goes.
class ShapeLiveTest < Case
  parallel! slow: 60

  include Shaping

  RELOAD = { watch: 0, keep: 0, warm: 0 }.freeze

  def live(settings = {}, **options)
    all = { workers: 1, threads: 2, shape: { workers: 1 }, reload: RELOAD }.merge(settings).compact
    start(app: WAITING_APP, workers: nil, threads: nil, environment: "production", settings: all, **options)
  end

  def command(own, *words)
    out, err, code = own.command_line(*words, "--dir", own.dir)
    assert_equal 0, code, -> { "#{out}#{err}#{own.report}" }
    out
  end

  # The requests that run at the same time.
  def busy(own) = own.stats["workers"].sum { |worker| worker["busy_threads"] }

  it "comes with `firebrick set`, uses the threads that workers have, and more after a reload; undone, all is as before" do
    own = live
    out = command(own, "set", "slo=p95 < 100ms", "--dry-run")
    assert_match(/^slo: off \(default\) -> p95 < 100ms$/, out)
    assert_match(/^warning: the running workers were started with at most 2 threads each: more are in use after `firebrick reload`$/, out)
    assert_nil shape(own)
    command(own, "set", "slo=p95 < 100ms")
    wait_until("the objective") { shape(own) }
    assert_logged(/shape: the objective is p95 < 100ms now, from 1x2 on/, on: own)
    assert_logged(/shape: the workers were started with 2 threads each; more are in use after `firebrick reload`/, on: own)
    under_load(own, "/wait", clients: 16) do
      wait_until("a reason", within: 30) { steps(own, "refused").any? { |step| step["why"].include?("were started with 2 threads each: `firebrick reload` starts") } }
      assert_equal [1, 2], now_in_force(own)
      command(own, "reload")
      wait_until("more threads", within: 30) { now_in_force(own).last >= 8 && busy(own) > 2 }
      assert_match(/is undone/, command(own, "set", "--undo"))
      wait_until("no objective") { shape(own).nil? }
      assert_logged(/shape: the objective is off: workers 1, at most 2 threads each/, on: own)
      wait_until("two threads") { busy(own) <= 2 }
      assert_operator Array.new(10) { busy(own) }.max, :<=, 2
    end
    assert_match(/undone by/, command(own, "set", "--history"))
    own.command_line("reload", own.dir)
    assert_equal 200, get("/wait", to: own).status
  end

  it "changes for a time, from the shape that there is" do
    own = live({ slo: "p95 < 100ms", threads: 1 })
    under_load(own, "/wait", clients: 16) { wait_until("threads", within: 30) { steps(own, "kept").any? && now_in_force(own).last >= 4 } }
    wait_until("the end of a trial", within: 20) { steps(own, "trying").empty? }
    seats = now_in_force(own).last
    command(own, "set", "slo=p99 < 3s", "shape.threads=1:16", "--for", "3s")
    wait_until("the other objective") { shape(own)["objective"] == "p99 < 3s" }
    assert_equal [[seats, 16].min, [1, 16]], shape(own).values_at("seats", "seats_bounds")
    assert_operator steps(own, "kept").size, :>, 0, "the steps so far stay"
    wait_until("the end of the change", within: 20) { shape(own)["objective"] == "p95 < 100ms" }
    assert_equal [1, 64], shape(own)["seats_bounds"]
    _, err, code = own.command_line("set", "shape.threads=4:8", "--dir", own.dir)
    assert_equal 1, code
    assert_match(/the server starts with 1 threads: set threads to a number from 4 to 8/, err)
  end

  it "comes and goes with a reload, and gives the workers back" do
    own = live({ shape: nil })
    file = own.path("firebrick.toml")
    without = File.read(file)
    File.write(file, "slo = \"p95 < 100ms\"\nshape.workers = \"1:3\"\n#{without}")
    command(own, "reload")
    wait_until("the objective") { shape(own) }
    assert_equal [1, 3], shape(own)["workers_bounds"]
    under_load(own, "/wait", clients: 16) { wait_until("threads", within: 30) { now_in_force(own).last >= 8 } }
    own.signal("TTIN")
    wait_until("another worker", within: 20) { own.stats["workers"].count { |worker| worker["state"] == "ready" } == 2 }
    File.write(file, without)
    command(own, "reload")
    wait_until("no objective") { shape(own).nil? }
    wait_until("one worker", within: 20) { own.stats["workers"].size == 1 }
    assert_equal 200, get("/wait", to: own).status
    File.write(file, "slo = \"p95 < 100ms\"\nshape.workers = \"1:500\"\nshape.threads = \"1:500\"\n#{without}")
    command(own, "reload")
    wait_until("the objective") { shape(own) }
    assert_logged(/shape\.workers is 1:500, but there can be at most \d+ in this server; restart it for more/, on: own)
    assert_logged(/shape\.threads is 1:500, but a worker of this server can have at most 64; restart it for more/, on: own)
    assert_equal [1, 64], shape(own)["seats_bounds"]
  end
end

# The learnt shape outlives the server.
class ShapeKeptTest < Case
  parallel! slow: 60

  include Shaping
  include Upgrading

  def setup
    super
    @state = Dir.mktmpdir("firebrick-state")
  end

  def teardown
    super
    FileUtils.remove_entry(@state)
  end

  def kept(directory = nil, *args)
    server(env: { "XDG_STATE_HOME" => @state }, directory: directory, args: args)
  end

  def finish(own)
    own.signal("TERM")
    own.wait_exit
  end

  def files = Dir.glob("#{@state}/firebrick/shapes/*")

  # Serves until the shape has more threads. Returns it.
  def learn(own)
    under_load(own, "/wait", clients: 16) { wait_until("threads", within: 30) { now_in_force(own).last >= 4 && steps(own, "trying").empty? } }
    # A trial that begins with the last requests ends without them.
    wait_until("the end of a trial", within: 20) { steps(own, "trying").empty? }
    wait_until("the file", within: 20) { files.one? { |file| JSON.parse(File.read(file))["seats"] == now_in_force(own).last } }
    now_in_force(own)
  end

  it "begins with the shape of the last run, but only under the same terms" do
    own = kept
    learnt = learn(own)
    file = files.fetch(0)
    modes = [file, File.dirname(file)].map { |path| File.stat(path).mode & 0o777 }
    assert_equal [0o600, 0o700], modes
    text = File.read(file)
    finish(own)

    again = kept(own.dir)
    assert_equal learnt, now_in_force(again)
    line = /from the last run: #{learnt.join('x')}, learnt at \d{4}-\d\d-\d\dT[\d:]+Z/
    assert_match(/^start     #{line}$/, again.command_line("shape", "--dir", again.dir).first)
    assert_logged(/shape: begins with that of the last run: #{learnt.join('x')}, learnt at/, on: again)
    assert_equal learnt.join("x"), shape(again)["last_run"]["shape"]
    under_load(again, "/wait", clients: 4) { |load| wait_until("requests at the same time") { load.completed.any? { |one| one.body.to_i >= 3 } } }
    finish(again)

    other = kept(own.dir, "--slo", "p95 < 1s")
    assert_equal [[1, 1], nil], [now_in_force(other), shape(other)["last_run"]]
    assert_logged(/shape: .*\.json is not used: it was learnt with slo p95 < 100ms, now p95 < 1s/, on: other)
    finish(other)

    off = kept(own.dir, "--shape-keep", "off")
    assert_equal [1, 1], now_in_force(off)
    finish(off)

    ["{", "", text.sub('"seats":', '"seats":9999'), text.sub('"version":1', '"version":7')].each do |damaged|
      File.write(file, damaged)
      bad = kept(own.dir)
      assert_equal [1, 1], now_in_force(bad), damaged
      assert_logged(/shape: .*\.json is not used: /, on: bad)
      finish(bad)
    end

    # A folder that cannot be written does no harm.
    FileUtils.remove_entry("#{@state}/firebrick")
    File.write("#{@state}/firebrick", "")
    full = kept(own.dir)
    under_load(full, "/wait", clients: 16) { wait_until("threads", within: 60) { steps(full, "kept").any? } }
    wait_until("a line") { full.stderr.match?(/shape: it cannot be kept in .*: Not a directory/) }
    finish(full)
  end

  it "goes on in the new program of an upgrade" do
    own = launch(app: WAITING_APP, workers: nil, threads: nil, environment: "production", env: { "XDG_STATE_HOME" => @state },
                 settings: { slo: "p95 < 100ms", workers: 1, threads: 1, shape: { workers: 1 } })
    learnt = learn(own)
    assert_upgrades(own)
    assert_equal learnt, now_in_force(own)
    assert_equal learnt.join("x"), shape(own)["last_run"]["shape"]
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
