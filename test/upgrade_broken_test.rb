# frozen_string_literal: true

# Upgrades that fail: the old program keeps serving, and the command prints the reason. Also kill -9 at every stage.

require "support/case"
require "support/upgrading"

class UpgradeBrokenTest < Case
  parallel! slow: true

  include Upgrading

  def setup
    firebrick_only
  end

  # The fault of a release => [its config.ru, the command's message].
  BROKEN = {
    "a syntax error" => ["run ->(_) { [", /syntax error/i],
    "an exception at boot" => ["raise ArgumentError, 'no such table'", /ArgumentError: no such table/],
    "exit at boot" => ["exit 3", /called exit \(3\)/],
    "a hang at boot" => ["sleep", /timeouts\.worker_boot \(2 s\)/],
    "workers that die" => ["require 'firebrick'\nFirebrick.after_fork { exit! 9 }\nrun ->(_) { [200, {}, ['new']] }", /the workers exit before they are ready/]
  }.freeze

  BROKEN.each do |name, (source, reason)|
    it "leaves the old program serving after #{name}" do
      own = launch(workers: 2, args: ["--pidfile", "server.pid"], binds: ["tcp://127.0.0.1:0", "unix://app.sock"],
                   files: { "firebrick.toml" => "" })
      File.write(own.path("firebrick.toml"), "[timeouts]\nworker_boot = '2s'\n") if name.include?("hang")
      load = Load.new(own.address, clients: 4, path: "/20ms").start
      File.write(own.path("config.ru"), source)
      assert_refused(own, reason)
      load.stop
      assert_empty load.errors
      upgrades = own.stats["upgrades"]
      assert_equal [{ "done" => 0, "failed" => 1 }, nil, "failed"], [upgrades["counts"], upgrades["running"], upgrades["last"]["outcome"]]
      assert_match(reason, upgrades["last"]["text"])
      assert_equal [[200, "one"]], load.completed.map { |one| [one.status, one.body] }.uniq
      assert_equal "#{own.pid}\n", File.read(own.path("server.pid"))
      UNIXSocket.open(own.path("app.sock"), &:close_write)
    end
  end

  it "names the mistake in the settings, and the address that is taken" do
    own = launch(files: { "firebrick.toml" => "" })
    before = [own.pid, workers_of(own).sort]
    taken = TCPServer.new("127.0.0.1", 0)
    { "workers = 'many'" => /upgrade: .*firebrick\.toml:1: workers = "many": expected "MIN:MAX" or a number of workers/,
      "control = ['tcp://127.0.0.1:#{taken.addr[1]}']" => /upgrade: control port .*: another program listens there/ }.each do |line, reason|
      File.write(own.path("firebrick.toml"), line)
      own.signal("USR2")
      assert wait_until(within: 30) { own.stderr.match?(reason) }, own.report
      File.write(own.path("firebrick.toml"), "")
      assert_unchanged(own, before)
    end
    assert_equal({ "done" => 0, "failed" => 2 }, own.stats["upgrades"]["counts"])
    assert_upgrades(own)
    assert_equal({ "done" => 1, "failed" => 2 }, own.stats["upgrades"]["counts"], "the new program goes on counting")
    assert_match(/^firebrick_upgrades_total\{outcome="done"\} 1$/, own.metrics)
    assert_match(/^firebrick_upgrades_total\{outcome="failed"\} 2$/, own.metrics)
  ensure
    taken&.close
  end

  # The kind of file at the program's path => the command's message.
  PROGRAMS = {
    nil => /is missing or not executable/,
    "/etc/passwd" => /is missing or not executable/,
    "/bin/false" => /ended \(exit status: 1\) before it served/,
    "/bin/true" => /ended \(exit status: 0\) before it served/
  }.freeze

  it "goes on when the program is missing, not executable, or another one" do
    bin = Dir.mktmpdir("firebrick-bin")
    program = File.join(bin, "firebrick")
    File.symlink(Server.binary, program)
    own = launch(program: program)
    PROGRAMS.each do |target, reason|
      FileUtils.rm_f(program)
      File.symlink(target, program) if target
      assert_refused(own, reason)
    end
    FileUtils.ln_sf(Server.binary, program)
    assert_upgrades(own)
  ensure
    own&.finish
    FileUtils.rm_rf(bin)
  end

  it "goes on when the new program is killed while it loads the app, and upgrades then" do
    own = launch_gated(args: ["--pidfile", "server.pid"], binds: ["tcp://127.0.0.1:0", "unix://app.sock"])
    before = [own.pid, workers_of(own).sort]
    close_gate(own)
    command, pid = begin_upgrade(own)
    wait_until("its template") { Processes.tree(pid).size > 1 }
    Process.kill("KILL", pid)
    _, err, code = command.value
    assert_equal 1, code
    assert_match(/the new program ended \(signal: 9 \(SIGKILL\)\) before it served/, err)
    assert_unchanged(own, before)
    assert_path_exists own.path("app.sock")
    assert_equal "#{own.pid}\n", File.read(own.path("server.pid"))
    open_gate(own)
    assert_upgrades(own)
  end

  it "goes on when the new program is stopped or killed at any moment" do
    own = launch(workers: 2)
    before = [own.pid, workers_of(own).sort]
    load = Load.new(own.address, clients: 2, path: "/20ms").start
    handed_over = false
    6.times do |number|
      command, pid = begin_upgrade(own)
      sleep number * 0.12
      Process.kill("KILL", pid)
      _, err, code = command.value
      # It was too late: the new program had taken over, so its requests are lost with it.
      break if (handed_over = code.zero?)

      assert_match(/before it served/, err)
      assert_unchanged(own, before)
      File.write(File.join(own.base, "stderr.log"), "")
    rescue Errno::ESRCH
      raise Minitest::Assertion, "it ended by itself\n#{own.report}"
    end
    load.stop
    assert_empty load.errors unless handed_over
  end

  it "ends the new program when it is told to end meanwhile" do
    own = launch_gated
    close_gate(own)
    command, pid = begin_upgrade(own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    assert_equal 1, command.value.last
    assert wait_until { !Processes.alive?(pid) }, "the new program is left"
  end

  it "refuses during a reload, and a reload during an upgrade" do
    own = launch_gated
    close_gate(own)
    reloading = Thread.new { own.command_line("reload", own.dir) }
    wait_until("the reload") { templates(own).size == 2 }
    _, err, code = upgrade(own)
    assert_equal 1, code
    assert_match(/a reload is under way/, err)
    open_gate(own)
    reloading.join
    wait_until("the end of the reload") { own.stderr.include?("the new code serves") }
    close_gate(own)
    command, = begin_upgrade(own)
    _, err, code = own.command_line("reload", own.dir)
    assert_equal 1, code
    assert_match(/an upgrade is under way/, err)
    open_gate(own)
    out, err, code = command.value
    assert_equal 0, code, -> { out + err }
    own.follow(new_pid(out))
  end

  it "refuses while a reload waits for old workers to leave" do
    own = launch(app: Reloading::APP.sub("sleep 1;", "sleep 0.02 until File.exist?('go.log');"), workers: 2, threads: "1:1")
    slow = Array.new(2) { connect(own).write(request("GET", "/slow")) }
    wait_until("all workers are busy") { own.stats["workers"].sum { |worker| worker["busy_threads"] } == 2 }
    reloading = own.begin_command("reload", own.dir, "--in-place")
    assert_logged(/reload: vacating/, on: own)
    _, err, code = upgrade(own)
    assert_equal 1, code
    assert_match(/a reload is under way/, err)
    File.write(own.path("go.log"), "")
    slow.each { |one| assert_status 200, one.read_response }
    assert_equal 0, reloading.wait.code, -> { "#{reloading.output}#{own.report}" }
  end

  # How a reload is ordered during an upgrade.
  ORDERS = {
    "USR1" => ->(own) { own.signal("USR1") },
    "tmp/restart.txt" => ->(own) { FileUtils.touch(own.path("tmp/restart.txt")) }
  }.freeze

  ORDERS.to_a.product([true, false]).each do |(name, order), fails|
    it "does not reload during an upgrade, and carries out the order of #{name} after it has #{fails ? 'failed' : 'succeeded'}" do
      own = launch_gated(files: { "tmp/restart.txt" => "" }, settings: { reload: { watch: "0s" } })
      close_gate(own)
      command, pid = begin_upgrade(own)
      wait_until("its template") { Processes.tree(pid).size > 1 }
      order.call(own)
      # The file is looked at twice a second.
      sleep 1.2
      refute_includes own.stderr, "reload: booting", own.report
      Process.kill("KILL", pid) if fails
      open_gate(own)
      out, = command.value
      own.follow(new_pid(out)) unless fails
      wait_until("the end of the reload", within: 20) { own.stderr.include?("the new code serves") }
    end
  end

  # A server that is process 1 of a PID namespace, as in a container.
  class ContainedServer < Server
    UNSHARE = %w[unshare --pid --fork --mount-proc].freeze

    # Its process id outside of the namespace.
    def inner
      Processes.all.values.find { |one| one.parent == @pid }&.pid
    end

    private

    def command = [*UNSHARE, *super]

    # `unshare` forwards no signals, and ends when the server does.
    def end_process
      inner&.then { |pid| Process.kill("TERM", pid) }
      return ["TERM did not end the server within 20 s"] unless wait_until(within: 20) { !running? }

      @status.exitstatus == @exit_code ? [] : ["the server ended with #{@status}, expected exit code #{@exit_code}"]
    end
  end

  it "refuses as process 1 of a container, in a sentence, and serves on" do
    out, status = Open3.capture2e(*ContainedServer::UNSHARE, "true")
    skip "needs a PID namespace of its own: #{out.strip}" unless status.success?
    own = ContainedServer.new(app: Reloading::APP, files: { "version.txt" => "one" })
    @own_servers << own
    own.start
    before = [own.inner, Processes.tree(own.inner).map(&:pid).sort]
    _, err, code = upgrade(own)
    assert_equal 1, code, own.report
    assert_match(/this is process 1 of a container, which ends with it: replace the container instead \(a rolling update\)/, err)
    Process.kill("USR2", own.inner)
    wait_until("both in the log") { own.stderr.scan("this is process 1 of a container").size == 2 }
    assert_equal 1, own.stats["pid"]
    assert_equal "one", get("/", to: own).body
    assert_equal before, [own.inner, Processes.tree(own.inner).map(&:pid).sort]
  end

  it "refuses for a server that is measured" do
    own = launch(env: { "FIREBRICK_TUNE_SERVER" => "1.1" })
    assert_refused(own, /`firebrick tune` measures this server$/)
  end
end
