# frozen_string_literal: true

# Broken releases: the reload fails with the reason, at most the canary's share of requests is affected, and the old state is restored.
# Also kill -9 of each process in each state of a reload.

require "support/case"
require "support/load"
require "support/reloading"

class BrokenReleasesTest < Case
  parallel! slow: true

  include Reloading

  # The fault of a release => [its config.ru, the command's message].
  BROKEN = {
    "a syntax error" => ["run ->(_) { [", /syntax error/i],
    "an exception at boot" => ["raise ArgumentError, 'no such table'", /ArgumentError: no such table/],
    "exit at boot" => ["exit 3", /called exit \(3\)/],
    "a hang at boot" => ["sleep", /timeouts\.worker_boot/],
    "a probe that fails" => ["run ->(env) { [env['PATH_INFO'] == '/up' ? 500 : 200, {}, ['new']] }", %r{GET /up returned 500}],
    "a death at the first request" => ["run ->(_) { Process.kill(:KILL, Process.pid); sleep }", /died|the worker/],
    "a worker that dies at its start" => ["require 'firebrick'\nFirebrick.after_fork { exit! 9 }\nrun ->(_) { [200, {}, ['new']] }", /exit code 9/]
  }.freeze

  BROKEN.each do |name, (source, reason)|
    it "leaves everything as it was after #{name}" do
      firebrick_only
      # Only hanging code is given up: on a busy machine good code takes seconds to load, too.
      limit = name == "a hang at boot" ? "10s" : "60s"
      own = launch_app(workers: 2, settings: { timeouts: { worker_boot: limit }, reload: { watch: "1s" } })
      before = workers_of(own).sort
      load = Load.new(own.address, clients: 4, path: "/20ms").start
      File.write(own.path("config.ru"), source)
      out, err, code = reload(own)
      load.stop
      assert_equal 1, code, -> { out + err }
      assert_match reason, err
      assert_workers own, before
      assert_equal 1, templates(own).size
      assert_empty load.errors
      assert_equal [[200, "one"]], load.completed.map { |one| [one.status, one.body] }.uniq, "no client got anything of it"
    end
  end

  it "refuses code that needs several times the memory" do
    firebrick_only
    own = launch_app(workers: 2, settings: { reload: { watch: "1s" } })
    before = workers_of(own).sort
    File.write(own.path("config.ru"), "HUGE = 'x' * (400 << 20)\nrun ->(_) { [200, {}, ['new']] }")
    out, err, code = reload(own)
    assert_equal 1, code, -> { out + err }
    assert_match(/a worker takes \d{3} MiB of resident memory, one of the old code \d+ MiB/, err)
    assert_workers own, before
    assert_equal "one", get("/", to: own).body
  end

  it "gives code that fails often no more than its share of the requests" do
    firebrick_only
    own = launch_app(workers: 2, threads: "2:2", settings: { reload: { watch: "30s", share: 10, probe: "/pid" } })
    before = workers_of(own).sort
    load = Load.new(own.address, clients: 4, path: "/20ms").start
    File.write(own.path("config.ru"), <<~'RUBY')
      run ->(env) { raise "one in three" if env["PATH_INFO"] != "/pid" && rand < 0.3; sleep 0.02; [200, { "content-length" => "3" }, ["new"]] }
    RUBY
    out, err, code = reload(own)
    load.stop
    assert_equal 1, code, -> { out + err }
    assert_match(%r{failed with 5xx|GET /20ms failed in \d+ of \d+ requests|\d+ requests failed, \d+ of them for GET /20ms}, err)
    assert_workers own, before
    touched = load.completed.count { |one| one.body != "one" }
    assert_operator touched, :>, 0, "it was watched"
    during = load.completed.size
    assert_operator touched, :<=, (during * 0.12).ceil + 2
  end

  it "notices code that is much slower than the old" do
    firebrick_only
    own = launch_app(workers: 2, threads: "4:4", settings: { reload: { watch: "30s", share: 50 } })
    load = Load.new(own.address, clients: 6, path: "/20ms").start
    File.write(own.path("config.ru"), "run ->(_) { sleep 0.3; [200, { 'content-length' => '3' }, ['new']] }")
    out, err, code = reload(own)
    load.stop
    assert_equal 1, code, -> { out + err }
    assert_match(%r{took \d+ ms on average|GET /20ms p\d+(?:\.\d+)? is [23]\d\d\.\d ms, was}, err)
    assert_equal [200], load.completed.map(&:status).uniq
  end

  it "serves code that proves itself" do
    firebrick_only
    own = launch_app(workers: 2, settings: { reload: { watch: "3s", probe: "/pid" } })
    load = Load.new(own.address, clients: 4, path: "/20ms").start
    deploy(own, "two")
    out = assert_reloads(own)
    load.stop
    assert_match(%r{^probing: GET /pid returned 200$}, out)
    assert_match(/^watching: \d+ requests, 0 % failed/, out)
    assert_equal "two", get("/", to: own).body
  end
end

class ReloadKillsTest < Case
  parallel! slow: true

  include Reloading

  STATES = %w[booting probing watching settling].freeze
  SLOW_UP = <<~RUBY
    slow_up = Class.new do
      def initialize(app) = @app = app

      def call(env)
        sleep 2 if env["PATH_INFO"] == "/up"
        @app.call(env)
      end
    end
    use slow_up
  RUBY

  STATES.each do |state|
    %i[old_template new_template old_worker new_worker].each do |victim|
      next if state == "booting" && victim == :new_worker

      it "has one generation with all workers again when the #{victim.to_s.tr('_', ' ')} is killed while #{state}" do
        firebrick_only
        own = launch_app(workers: 2, settings: { reload: { watch: "3s", keep: "3s" } })
        old = templates(own).first.pid
        prepare(own, state)
        command = Thread.new { reload(own) }
        wait_until(state) { reached?(own, state) }
        pid = wait_until("the victim") { find(own, victim, old) }
        Process.kill("KILL", pid)
        out, err, code = command.value
        assert_includes [0, 1], code, -> { out + err }
        wait_until("one generation", within: 20) { templates(own).size == 1 && workers_of(own).size == 2 && own.processes.size == 4 }
        assert_status 200, get("/", to: own)
        assert_reloads(own)
      end
    end
  end

  private

  def prepare(own, state)
    source = File.read(own.path("config.ru"))
    source = "sleep 2 unless File.exist?('booted')\n#{source}" if state == "booting"
    source = SLOW_UP + source if state == "probing"
    File.write(own.path("config.ru"), source)
  end

  def reached?(own, state)
    log = own.stderr
    case state
    when "probing" then log.include?("the app is loaded") && templates(own).size == 2 && workers_of(own).size == 3
    when "settling" then log.include?("the new code serves")
    else log.include?("reload: #{state}: ")
    end
  end

  def find(own, victim, old)
    generation, kind = victim.to_s.split("_")
    template = templates(own).map(&:pid).find { |pid| (pid == old) == (generation == "old") }
    return template if kind == "template"

    # While the reload settles, the old workers are gone: then a new one is killed.
    workers = own.processes.select { |one| one.parent == template }
    workers = own.processes.select { |one| templates(own).map(&:pid).include?(one.parent) } if workers.empty?
    workers.first&.pid
  end
end
