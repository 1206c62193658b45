# frozen_string_literal: true

# `limits.worker_memory`, `limits.max_requests`, `limits.max_age`: workers that are replaced, and the effects on clients.

require "support/case"
require "support/load"

WORKER_LIMITS_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/pid" then [200, text, [Process.pid.to_s]]
    when "/20ms" then sleep 0.02; [200, text, [Process.pid.to_s]]
    when "/slow" then sleep 2; [200, text, [Process.pid.to_s]]
    when %r{\A/grow/(\d+)} then ($kept ||= []) << ("x" * ($1.to_i << 20)); [200, text, [Process.pid.to_s]]
    else [200, text, ["fine"]]
    end
  }
RUBY

class WorkerLimitsTest < Case
  parallel! slow: 65

  def server(limits, **options)
    start(app: WORKER_LIMITS_APP, settings: { limits: limits }, **options)
  end

  it "replaces workers after max_requests, the successor first, and loses no request" do
    firebrick_only
    own = server({ max_requests: 200 }, workers: 2, threads: "1:1")
    load = Load.new(own.address, clients: 8, path: "/20ms").start
    wait_until("six workers", within: 60) { load.completed.map(&:body).uniq.size >= 6 }
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    served = load.completed.map(&:body).tally
    # The successor serves first, so the last of the four may still be ending.
    deaths = wait_until("four deaths") { own.control("/deaths").reject { |one| one["cause"] == "drain" }.then { |found| found if found.size >= 4 } }
    deaths.each do |one|
      assert_equal ["max_requests", 0, []], one.values_at("cause", "exit_code", "in_flight")
      assert_operator one["requests"], :>=, 180
      # Requests in progress when the load ended are not among its responses.
      assert_in_delta one["requests"], served[one["pid"].to_s], 8
    end
    assert_operator deaths.map { |one| one["requests"] }.uniq.size, :>, 1, "they differ"
    assert_logged(/worker \d \(pid \d+\) finished, replaced because of limits\.max_requests \(200\); it was /, on: own)
  end

  it "replaces workers at max_age, and lets the old one finish" do
    firebrick_only
    own = server({ max_age: "3s" }, workers: 1, threads: "2:2")
    first = get("/pid", to: own).body
    sleep 1.5
    slow = connect(own).write(request("GET", "/slow"))
    wait_until("a successor") { get("/pid", to: own).body != first }
    assert_equal first, slow.read_response.body
    death = wait_until("its record") { own.control("/deaths").find { |one| one["pid"] == first.to_i } }
    assert_equal ["max_age", 0, []], death.values_at("cause", "exit_code", "in_flight")
    assert_operator death["age_s"], :>=, 2.7
    assert_equal 1, own.stats["deaths"]["max_age"]
  end

  it "keeps the old worker when its successor cannot start" do
    firebrick_only
    own = start(workers: 1, threads: "1:1", settings: { limits: { max_age: "2s" } }, app: <<~'RUBY')
      run ->(_) { [200, {}, [Process.pid.to_s]] }
      Firebrick.after_fork do
        File.write("forks.log", "x", mode: "a")
        exit!(1) if File.size("forks.log") > 1
      end
    RUBY
    first = get("/", to: own).body
    wait_until("two attempts", within: 20) { File.size(own.path("forks.log")) >= 3 }
    assert_equal first, get("/", to: own).body
  end

  it "kills a worker at once whose memory explodes" do
    firebrick_only
    own = server({ worker_memory: "120MB" }, workers: 1, threads: "2:2")
    pid = get("/pid", to: own).body
    wait_until("a first measurement", within: 10) { sleep 3 }
    # Below one and a half times the limit the worker stays.
    assert_equal pid, get("/grow/60", to: own).body
    slow = connect(own).write(request("GET", "/slow"))
    get("/grow/200", to: own)
    death = wait_until("its record", within: 20) { own.control("/deaths").first }
    assert_equal ["memory", 9, pid.to_i], death.values_at("cause", "signal", "pid")
    assert_operator death["pss_bytes"], :>=, 180_000_000
    assert_includes [200, 502], slow.read_response.status
    assert_logged(/was killed, because its memory of [\d.]+ MiB exceeds limits\.worker_memory \(114\.4 MiB\) by half or more/, on: own)
    refute_equal pid, get("/pid", to: own).body
    refute_match(/too small/, own.stderr)
  end

  it "says that a memory limit is too small, and leaves the workers alone" do
    firebrick_only
    own = server({ worker_memory: "1MB" }, workers: 2, threads: "1:1")
    assert_logged(/limits\.worker_memory \(1\.0 MiB\) is too small for this app: two workers in a row had more in their first minute \([\d.]+ MiB and [\d.]+ MiB\).* set it to \d+ MB or more/, on: own)
    sleep 5
    assert_empty own.control("/deaths")
    assert_equal 1, own.stderr.scan("too small").size
  end

  it "replaces a worker that has grown once it is a minute old" do
    firebrick_only
    own = server({ worker_memory: "80MB" }, workers: 1, threads: "1:1")
    pid = get("/pid", to: own).body
    sleep 58
    assert_equal pid, get("/grow/80", to: own).body
    death = wait_until("its record", within: 30) { own.control("/deaths").first }
    assert_equal ["memory", 0, pid.to_i, []], death.values_at("cause", "exit_code", "pid", "in_flight")
    assert_operator death["age_s"], :>=, 60
    assert_operator death["pss_bytes"], :>, 80_000_000
    assert_logged(/finished, replaced because its memory of [\d.]+ MiB exceeds limits\.worker_memory \(76\.3 MiB\)/, on: own)
    assert_status 200, get("/", to: own)
  end
end
