# frozen_string_literal: true

# Reloads when memory has no room for old and new code together: the message, and `--in-place`.

require "support/case"
require "support/load"
require "support/reloading"

class ReloadInPlaceTest < Case
  parallel! slow: true

  include Reloading

  it "lets old workers and the old template leave first, and loses no request" do
    firebrick_only
    own = launch_app(workers: 3, threads: "2:2")
    load = Load.new(own.address, clients: 4, path: "/20ms").start
    wait_until("load") { load.completed.size > 20 }
    deploy(own, "two")
    out = assert_reloads(own, "--in-place")
    assert_match(/^vacating: 2 of 3 workers serve until the new code does; the old template ends$/, out)
    assert_match(/^booting: loading the app in the place of the old one$/, out)
    assert_match(/3 of 3 workers run the new code/, out)
    refute_match(/--undo/, out)
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    assert_equal "two", get("/", to: own).body
    wait_until("one template and three workers") { templates(own).size == 1 && workers_of(own).size == 3 }
    assert_match(/nothing to undo/, reload(own, "--undo")[1])
    wait_until("three deaths") { own.control("/deaths").size == 3 }
    assert_equal ["drain"], own.control("/deaths").map { |death| death["cause"] }.uniq
    refute_match(/exit status unknown/, own.control("/deaths").to_s)
    refute_match(/worker \d+ \(pid \d+\) (ended|finished)/, own.stderr, "workers that finish as they were told are not news")
  end

  it "serves the new code, and nothing else later, although the old template is killed while old workers leave" do
    firebrick_only
    app = APP.sub("sleep 1;", "sleep 0.1 until File.exist?('go.log');")
    own = launch_app(app: app, workers: 3, threads: "1:1")
    # Every worker has a request, so whichever is replaced does.
    slow = Array.new(3) { connect(own).write(request("GET", "/slow")) }
    wait_until("all workers are busy") { own.stats["workers"].sum { |worker| worker["busy_threads"] } == 3 }
    deploy(own, "two")
    old = templates(own).first.pid
    command = own.begin_command("reload", own.dir, "--in-place")
    assert_logged(/reload: vacating/, on: own)
    Process.kill("KILL", old)
    assert_logged(/the template has died/, on: own)
    File.write(own.path("go.log"), "")
    assert_equal 0, command.wait.code, -> { "#{command.output}#{own.report}" }
    assert_equal ["one to the end"], slow.map { |one| one.read_response.body }.uniq
    assert_equal ["two"], Array.new(20) { get("/", to: own).body }.uniq
    # The replacement of a dead template has the code that serves.
    Process.kill("KILL", templates(own).first.pid)
    assert_logged(/a new template has loaded the app/, on: own)
    assert_equal ["two"], Array.new(20) { get("/", to: own).body }.uniq
  end

  it "serves with one worker all the time" do
    firebrick_only
    own = launch_app(workers: 1)
    load = Load.new(own.address, clients: 2, path: "/20ms").start
    deploy(own, "two")
    assert_match(/^vacating: 1 of 1 workers/, assert_reloads(own, "--in-place"))
    load.stop
    assert_empty load.errors
    assert_equal "two", get("/", to: own).body
  end

  it "says that there is no old template when new code is broken; old workers serve on until the code is right" do
    firebrick_only
    own = launch_app(workers: 3)
    app = File.read(own.path("config.ru"))
    File.write(own.path("config.ru"), "raise 'broken'")
    out, err, code = reload(own, "--in-place")
    assert_equal 1, code, out
    assert_match(/RuntimeError: broken/, err)
    assert_match(/no template of the old code: 2 old workers serve on, and the code of before is loaded again/, err)
    assert_equal "one", get("/", to: own).body
    assert_logged(/the app cannot be loaded again: RuntimeError: broken/, on: own)
    File.write(own.path("config.ru"), app)
    deploy(own, "two")
    wait_until("the app to be loaded again", within: 30) { get("/", to: own).body == "two" }
    wait_until("all workers") { own.stats["workers"].count { |worker| worker["state"] == "ready" && worker["phase"].positive? } == 3 }
  end

  it "says that memory has no room for both before anything happens" do
    firebrick_only
    group = memory_group
    app = "$heap = Array.new(60_000) { |i| i.to_s * 1000 }\n#{Reloading::APP}"
    own = launch_app(app: app, exit_code: :any)
    own.processes.each { |one| File.write("#{group}/cgroup.procs", one.pid.to_s) }
    before = own.processes.map(&:pid).sort
    File.write("#{group}/memory.limit_in_bytes", "100M")
    deploy(own, "two")
    out, err, code = reload(own)
    assert_equal 1, code, out
    assert_match(/not enough memory to load the new code while the old code serves: a second template and 1 worker need about \d+ MiB/, err)
    assert_match(/and \d+ MiB are available; nothing was changed\. `firebrick reload --in-place`/, err)
    assert_equal [before, "one"], [own.processes.map(&:pid).sort, get("/", to: own).body]
    File.write("#{group}/memory.limit_in_bytes", "2G")
    assert_reloads(own)
    assert_equal "two", get("/", to: own).body
  ensure
    leave(own, group) if group
  end

  private

  # A memory group (cgroup version 1) that this process can create.
  def memory_group
    group = "/sys/fs/cgroup/memory/firebrick-test-#{Process.pid}"
    Dir.mkdir(group)
    group
  rescue SystemCallError
    skip "needs a memory control group (version 1) that it may make"
  end

  def leave(own, group)
    File.write("#{group}/memory.limit_in_bytes", "-1")
    own&.finish
    wait_until("the group to be empty") { File.read("#{group}/cgroup.procs").empty? }
    Dir.rmdir(group)
  end
end
