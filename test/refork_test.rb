# frozen_string_literal: true

# `rack.refork_after`: a warm worker becomes the next template, no request is lost, and the server survives any death meanwhile.

require "support/case"
require "support/load"
require "support/reloading"

class ReforkTest < Case
  parallel! slow: 40

  include Reloading

  # Each worker allocates memory at its first requests: 12 MB of strings and hashes.
  LAZY = <<~'RUBY'
    text = { "content-type" => "text/plain" }
    warm = nil
    version = File.read(File.join(__dir__, "version.txt"))
    Firebrick.after_fork { |index| warn "after_fork #{index}" }
    Firebrick.before_refork { sleep 1 while File.exist?("hold"); raise "not now" if File.exist?("refuse") }
    run lambda { |env|
      was_warm = !warm.nil?
      warm ||= Array.new(30_000) { |number| { "key #{number}" => "#{number} " * 50 } }
      case env["PATH_INFO"]
      when "/pid" then [200, text, [Process.pid.to_s]]
      when "/warm" then [200, text, [was_warm.to_s]]
      when "/10ms" then sleep 0.01; [200, text, [version]]
      when "/slow" then sleep 1.5; [200, text, ["#{version} to the end"]]
      when "/die" then Process.kill("KILL", Process.pid)
      else [200, text, [version]]
      end
    }
  RUBY

  def launch_lazy(after: [20, 0], app: LAZY, **options)
    settings = { rack: { refork_after: after }, reload: { keep: "0s" } }
    settings = settings.merge(options.delete(:settings) || {}) { |_, one, other| one.merge(other) }
    launch_app(**{ app: app, workers: 3, threads: "2:2", settings: settings }.merge(options))
  end

  # Sends requests from several clients until the log matches.
  def serve_until(own, pattern, within: 60, path: "/10ms")
    load = Load.new(own.address, clients: 6, path: path).start
    found = wait_until(within: within) { own.stderr.match?(pattern) }
    load.stop
    assert found, -> { "the log does not say #{pattern.inspect}\n#{own.report}" }
    load
  end

  def assert_lossless(*loads)
    assert_empty loads.flat_map(&:errors)
    assert_equal [200], loads.flat_map { |load| load.completed.map(&:status) }.uniq
  end

  def refork(own, times = 1)
    serve_until(own, /(refork: all workers were forked from a warm one.*){#{times}}/m)
  end

  it "makes a warm worker the template of all, without losing a request" do
    firebrick_only
    own = launch_lazy
    before = [templates(own).map(&:pid), workers_of(own)]
    closing = Load.new(own.address, clients: 2, path: "/10ms", keep_alive: false).start
    load = refork(own)
    closing.stop
    assert_lossless load, closing
    wait_until("one template") { templates(own).size == 1 && workers_of(own).size == 3 }
    refute_equal before.first, templates(own).map(&:pid)
    assert_empty workers_of(own) & before.last
    assert_equal ["true"], Array.new(8) { get("/warm", to: own).body }.uniq
    assert_logged(/refork: worker \d \(pid #{Regexp.union(before.last.map(&:to_s))}\) has served 20 requests/, on: own)
    reforks = own.stats["reforks"]
    assert_equal [counts("done" => 1), nil], reforks.values_at("counts", "running")
    assert_equal ["done", "all workers were forked from a warm one"], reforks["last"].values_at("outcome", "text")
    assert_operator reforks["last"]["took_s"], :>, 5, "it settles for five seconds"
    assert_match(/^firebrick_reforks_total\{outcome="done"\} 1$/, own.metrics)
  end

  # The counts of reforks by outcome.
  def counts(more)
    { "done" => 0, "failed" => 0, "reverted" => 0, "dropped" => 0 }.merge(more)
  end

  it "shares what workers have built" do
    firebrick_only
    own = launch_lazy(after: [1_000_000])
    other = launch_lazy
    load = Load.new(own.address, clients: 6, path: "/10ms").start
    refork(other)
    load.stop
    [own, other].each { |server| 60.times { get("/10ms", to: server) } }
    assert_operator other.pss, :<, 0.8 * own.pss
  end

  it "goes on with the next figure of the list, and ends at 0" do
    firebrick_only
    own = launch_lazy(after: [20, 40, 0])
    assert_lossless refork(own, 2)
    assert_logged(/has served 20 requests.*has served 40 requests/m, on: own)
    so_far = own.stderr.scan("becomes the next template").size
    100.times { get("/", to: own) }
    sleep 1
    assert_equal so_far, own.stderr.scan("becomes the next template").size
  end

  it "answers what a worker has begun before it becomes a template" do
    firebrick_only
    own = launch_lazy
    slow = Array.new(4) { connect(own).tap { |one| one.write(request("GET", "/slow")) } }
    assert_lossless refork(own)
    assert_equal ["one to the end"], slow.map { |one| one.read_response("GET").body }.uniq
  end

  it "leaves no thread of the app and no descriptor behind" do
    firebrick_only
    app = LAZY.sub("run lambda", <<~'RUBY' + "run lambda")
      lock, made = Mutex.new, []
      Firebrick.after_fork { Thread.new { lock.synchronize { sleep } } unless made.any?; made << 1 }
      Firebrick.after_fork { 3.times { Thread.new { loop { sleep 0.001; made.size } } } }
    RUBY
    own = launch_lazy(app: app, after: [20, 20, 0])
    # Since 3.3 Ruby always has a timer thread.
    ruby = threads(templates(own).first)
    assert_lossless refork(own)
    first = settled_descriptors(templates(own).last)
    assert_lossless refork(own, 2)
    wait_until("one template") { templates(own).size == 1 }
    assert_equal first, settled_descriptors(templates(own).first)
    assert_equal ruby, threads(templates(own).first)
  end

  def threads(process)
    Dir["/proc/#{process.pid}/task/*"].size
  end

  # The number of descriptors of an idle process: while it forks, it holds those of the child, too.
  def settled_descriptors(process)
    counts = []
    wait_until("the descriptors of #{process.pid} settle") do
      counts << Dir["/proc/#{process.pid}/fd/*"].size
      sleep 0.1
      counts.size >= 10 && counts.last(10).uniq.size == 1
    end
    counts.last
  end

  it "reloads after a refork, and counts anew" do
    firebrick_only
    own = launch_lazy
    refork(own)
    deploy(own, "two")
    assert_reloads(own)
    assert_equal "two", get("/", to: own).body
    assert_lossless refork(own, 2)
    assert_equal "two", get("/", to: own).body
  end

  it "does not refork while a reload can be undone, and cannot undo a refork" do
    firebrick_only
    own = launch_lazy(settings: { reload: { keep: "60s" } })
    deploy(own, "two")
    assert_reloads(own)
    100.times { get("/", to: own) }
    sleep 1
    refute_match(/refork/, own.stderr)
    assert_match(/the old code serves again/, assert_reloads(own, "--undo"))
    assert_equal "one", get("/", to: own).body
    assert_lossless refork(own)
    assert_equal "one", get("/", to: own).body
    assert_match(/nothing to undo/, reload(own, "--undo")[1])
  end

  it "gives way to a reload while the template is made" do
    firebrick_only
    own = launch_lazy(files: { "hold" => "" })
    made = held(own)
    running = own.stats["reforks"]["running"]
    assert_equal ["becoming", "a warm worker finishes its requests and becomes the next template"], running.values_at("stage", "text")
    deploy(own, "two")
    assert_reloads(own)
    assert_equal [counts("dropped" => 1), nil], own.stats["reforks"].values_at("counts", "running")
    assert_equal "two", get("/", to: own).body
    wait_until("it to end") { !Processes.alive?(made) }
    wait_until("three workers") { workers_of(own).size == 3 }
    File.delete(own.path("hold"))
    assert_lossless refork(own)
  end

  # Waits for the process that is becoming a template, held by its hook.
  def held(own)
    first = templates(own).first.pid
    serve_until(own, /becomes the next template/)
    made = nil
    wait_until("the template to be made") { made = templates(own).find { |one| one.pid != first } }
    made
  end

  it "says why when the hook refuses, and gives up after three times" do
    firebrick_only
    own = launch_lazy(files: { "refuse" => "" })
    before = templates(own).map(&:pid)
    load = serve_until(own, /refork failed.*not now \(RuntimeError\)|refork failed.*not now/m)
    assert_lossless load
    load = serve_until(own, /no worker becomes a template until the next reload/, within: 90)
    assert_lossless load
    assert_equal before, templates(own).map(&:pid)
    assert_equal 3, own.stderr.scan("refork failed").size
    assert_equal counts("failed" => 3), own.stats["reforks"]["counts"]
    assert_match(/not now/, own.stats["reforks"]["last"]["text"])
    File.delete(own.path("refuse"))
    assert_reloads(own)
    assert_lossless refork(own)
  end

  it "goes on when the process that becomes a template is killed" do
    firebrick_only
    own = launch_lazy(files: { "hold" => "" })
    Process.kill("KILL", held(own).pid)
    assert_logged(/refork failed, the workers stay those of the old template: its template died/, on: own)
    wait_until("three workers") { workers_of(own).size == 3 && templates(own).size == 1 }
    File.delete(own.path("hold"))
    assert_lossless refork(own)
  end

  it "ends cleanly while a template is made" do
    firebrick_only
    own = launch_lazy(files: { "hold" => "" })
    held(own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
  end

  it "goes on when the chosen worker is killed" do
    firebrick_only
    own = launch_lazy(threads: "1:1")
    slow = connect(own)
    serve_until(own, /becomes the next template/)
    pid = own.stderr[/refork: worker \d \(pid (\d+)\)/, 1].to_i
    Process.kill("KILL", pid) rescue Errno::ESRCH
    slow.write(request("GET", "/"))
    assert_equal 200, slow.read_response("GET").status
    refork(own)
    wait_until("three workers") { workers_of(own).size == 3 && templates(own).size == 1 }
  end

  it "loads the app again when the new template is killed" do
    firebrick_only
    own = launch_lazy
    refork(own)
    wait_until("one template") { templates(own).size == 1 }
    Process.kill("KILL", templates(own).first.pid)
    load = serve_until(own, /a new template has loaded the app/)
    assert_lossless load
    wait_until("three workers of the new template") { templates(own).size == 1 && workers_of(own).size == 3 }
    assert_equal 200, get("/", to: own).status
  end

  it "goes on when the old template is killed while the new one is made" do
    firebrick_only
    own = launch_lazy(files: { "hold" => "" })
    old = templates(own).first.pid
    held(own)
    load = Load.new(own.address, clients: 4, path: "/10ms").start
    Process.kill("KILL", old)
    sleep 0.5
    File.delete(own.path("hold"))
    wait_until("one template and three workers", within: 60) { templates(own).size == 1 && workers_of(own).size == 3 }
    load.stop
    assert_lossless load
  end

  it "does nothing in development, and with a single worker" do
    firebrick_only
    [launch_lazy(environment: "development"), launch_lazy(workers: 1)].each do |own|
      before = templates(own).map(&:pid)
      80.times { get("/", to: own) }
      sleep 1.5
      assert_equal before, templates(own).map(&:pid)
      refute_match(/refork/, own.stderr)
    end
  end
end
