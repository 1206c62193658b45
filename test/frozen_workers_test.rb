# frozen_string_literal: true

# Processes that no longer run, or that run code which blocks everything else: stopped workers, a stopped template, native code that
# keeps the GVL.

require "support/case"

FROZEN_APP = <<~'RUBY'
  require "fiddle"
  text = { "content-type" => "text/plain" }
  # Waits in C for a mutex that it has locked itself, and keeps the GVL meanwhile. Signals do not end the wait.
  MUTEX = Fiddle::Pointer.malloc(128)
  128.times { |at| MUTEX[at] = 0 }
  lock = ->(name, *types) { Fiddle::Function.new(Fiddle.dlopen(nil)[name], types, Fiddle::TYPE_INT, need_gvl: true) }
  lock.("pthread_mutex_lock", Fiddle::TYPE_VOIDP).call(MUTEX)
  TIMED_LOCK = lock.("pthread_mutex_timedlock", Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP)
  hold = ->(seconds) { TIMED_LOCK.call(MUTEX, [Time.now.to_i + seconds, 0].pack("q2")) }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/pid" then [200, text, [Process.pid.to_s]]
    when "/count" then File.write("count.log", "x", mode: "a"); [200, text, [Process.pid.to_s]]
    when "/hold" then File.write("entered.log", "yes"); hold.(env["QUERY_STRING"].to_i); [200, text, [Process.pid.to_s]]
    when "/hold-behind"
      Thread.new { File.write("entered.log", "yes") && hold.(env["QUERY_STRING"].to_i) }
      [200, text, [Process.pid.to_s]]
    else [200, text, ["fine"]]
    end
  }
RUBY

class FrozenWorkersTest < Case
  parallel! slow: true

  it "serves the requests of a stopped worker by another one, each once" do
    firebrick_only
    own = start(workers: 2, threads: "1:3", app: FROZEN_APP)
    victim = get("/pid", to: own).body.to_i
    Process.kill("STOP", victim)
    started = now
    clients = Array.new(6) { connect(own).write(request("GET", "/count")) }
    clients.each { |client| assert_status 200, client.read_response }
    assert_operator now - started, :<, 5, "they do not wait until the worker is killed"
    wait_until("the worker to be killed") { !Processes.alive?(victim) }
    wait_until("its replacement") { workers_of(own).size == 2 }
    assert_equal 6, File.size(own.path("count.log"))
    assert_logged(/worker \d+ \(pid #{victim}\) took up no requests and was killed/, on: own)
  end

  it "does not let those wait whose requests a stopped worker has begun" do
    firebrick_only
    app = <<~'RUBY'
      run lambda { |env|
        if env["PATH_INFO"] == "/wait"
          File.write("entered#{env["QUERY_STRING"]}.log", "")
          sleep 60
        end
        [200, {}, [Process.pid.to_s]]
      }
    RUBY
    own = start(workers: 2, threads: "1:3", app:)
    clients = Array.new(2) { |i| connect(own).write(request("GET", "/wait?#{i}")) }
    wait_until("both are being served") { Dir[own.path("entered*.log")].size == 2 }
    workers_of(own).each { |pid| Process.kill("STOP", pid) }
    started = now
    clients.each { |client| assert_includes [500, 502, 503, 504], client.read_response.status }
    assert_operator now - started, :<, 12, "not until their time-out"
    assert_status 200, get("/pid", to: own)
    assert_logged(/was killed/, on: own)
  end

  it "recovers by itself when its only worker is stopped" do
    firebrick_only
    own = start(workers: 1, threads: "1:1", app: FROZEN_APP)
    Process.kill("STOP", workers_of(own).first)
    started = now
    assert_status 200, get("/count", to: own)
    assert_operator now - started, :<, 12
    assert_equal 1, File.size(own.path("count.log"))
  end

  it "does not kill a worker that is stopped for a moment" do
    firebrick_only
    own = start(workers: 1, threads: "1:1", app: FROZEN_APP)
    victim = workers_of(own).first
    Process.kill("STOP", victim)
    waiting = connect(own).write(request("GET", "/count"))
    sleep 2.5
    Process.kill("CONT", victim)
    assert_equal victim.to_s, waiting.read_response.body
    assert_equal 1, File.size(own.path("count.log"))
    assert_equal [victim], workers_of(own)
  end

  it "gives the requests behind native code that keeps the GVL to other workers, and lets that code finish" do
    firebrick_only
    own = start(workers: 2, threads: "3:3", app: FROZEN_APP)
    slow = connect(own).write(request("GET", "/hold?8"))
    wait_until("the request to be served") { File.exist?(own.path("entered.log")) }
    started = now
    20.times { assert_status 200, get("/count", to: own) }
    assert_operator now - started, :<, 5
    held = slow.read_response
    assert_status 200, held
    assert Processes.alive?(held.body.to_i), "the worker was not killed"
    assert_equal 20, File.size(own.path("count.log"))
  end

  it "serves by a new worker when the only one keeps the GVL" do
    firebrick_only
    own = start(workers: 1, threads: "3:3", app: FROZEN_APP, settings: { timeouts: { worker: 15 } })
    victim = get("/hold-behind?60", to: own).body.to_i
    wait_until("the GVL to be held") { File.exist?(own.path("entered.log")) }
    sleep 0.5
    started = now
    response = get("/pid", to: own)
    assert_status 200, response
    refute_equal victim, response.body.to_i
    assert_operator now - started, :<, 12
    assert wait_until("the old worker to be killed", within: 30) { !Processes.alive?(victim) }
  end

  it "replaces a template that is stopped while a worker has to be replaced" do
    firebrick_only
    own = start(workers: 2, threads: "1:1", app: FROZEN_APP)
    template = template_of(own)
    Process.kill("STOP", template)
    victim = workers_of(own).first
    Process.kill("KILL", victim)
    20.times do
      assert_status 200, get("/pid", to: own)
      sleep 0.05
    end
    wait_until("a new template", within: 20) { (other = template_of(own)) && other != template }
    wait_until("two workers", within: 20) { workers_of(own).size == 2 }
    refute Processes.alive?(template)
    assert_status 200, get("/pid", to: own)
  end

  it "ends at TERM although its template is stopped" do
    firebrick_only
    own = start(workers: 2, app: FROZEN_APP)
    Process.kill("STOP", template_of(own))
    own.signal("TERM")
    assert_equal 0, own.wait_exit(within: 20)
  end

  private

  def template_of(server)
    Processes.templates(server.pid).first&.pid
  end

  def workers_of(server)
    templates = Processes.templates(server.pid).map(&:pid)
    Processes.all.values.select { |one| templates.include?(one.parent) }.map(&:pid)
  end
end
