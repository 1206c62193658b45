# frozen_string_literal: true

# `Firebrick.service`: processes that run a block of the app, forked from the template, with the supervision of `[services]`.

require "support/case"
require "support/load"
require "support/services"

class ServiceHooksTest < Case
  parallel! slow: true

  include Services

  # The block logs its start and its surroundings, and ends as a test says.
  BLOCK = <<~'RUBY'
    LOADED_BY = Process.pid
    note = lambda { |file, text| File.write(file, "#{text}\n", mode: "a") }
    at_exit { note.call("at_exit.log", Process.pid) }
    block = lambda do |service|
      note.call("starts.log", "#{Process.pid} #{LOADED_BY} #{File.read('version.txt')} #{Dir.pwd} #{$stdin.read.inspect} #{service.name}")
      puts "hello\nfrom #{Process.pid}"
      warn "careful"
      trap("USR1") { exit 3 }
      trap("USR2") { raise "a bug" }
      sleep 0.02 until File.exist?("finish") || service.wait(0.02)
      note.call("stopped.log", Process.pid)
    end
  RUBY

  def app_with(declaration, before: "")
    "#{before}#{BLOCK}#{declaration}\n#{Reloading::APP}"
  end

  def launch(options = "", app: app_with(%(Firebrick.service("jobs"#{options}, &block))), **rest)
    launch_app(app: app, **rest)
  end

  def launch_with(code) = launch(app: app_with(%(Firebrick.service("jobs", &block)\n#{code})))

  def launch_bare = launch(", prefix: false")

  def launch_stubborn(**options) = launch(app: STUBBORN + Reloading::APP, **options)

  # The file descriptors of a process that are sockets.
  def sockets(pid)
    Dir["/proc/#{pid}/fd/*"].filter_map { |path| File.readlink(path) }.grep(/socket|scoreboard/)
  end

  it "runs a block of the loaded app in a process that has no socket of the server" do
    firebrick_only
    own = launch
    pid = service_pid(own)
    template = templates(own).first.pid
    assert_equal ["#{pid} #{template} one #{own.dir} \"\" jobs"], lines(own, "starts.log")
    assert_runs(own, pid)
    assert_match(/\Afirebrick: service jobs/, File.read("/proc/#{pid}/cmdline"))
    assert_empty sockets(pid)
    assert_equal pid.to_s, status(pid)[4], "it leads a process group"
    refute_equal template, status(pid)[3].to_i, "a guard is between them"
    assert_equal "one", get("/", to: own).body
  end

  it "is started again when it ends, however it ends, and the server serves on" do
    firebrick_only
    own = launch
    first = service_pid(own)
    Process.kill("KILL", first)
    second = service_pid(own, 2)
    assert_logged(/service jobs \(pid #{first}\) was ended by signal 9.*it starts again in 1 s/, on: own)
    Process.kill("USR2", second)
    third = service_pid(own, 3)
    assert_logged(/jobs \| \[\S+\] firebrick\[\d+\]: error: RuntimeError: a bug\njobs \|     .*config\.ru:\d+/, on: own)
    assert_logged(/service jobs \(pid #{second}\) ended with exit code 1.*it starts again in 2 s/, on: own)
    Process.kill("USR1", third)
    service_pid(own, 4)
    assert_logged(/service jobs \(pid #{third}\) ended with exit code 3.*it starts again in 4 s/, on: own)
    assert_equal [3, "ended with exit code 3"], service(own).values_at("restarts", "last_end")
    assert_equal [second, third].map(&:to_s), lines(own, "at_exit.log"), "as in any Ruby program"
    assert_equal "one", get("/", to: own).body
    assert_empty zombies(own)
  end

  def zombies(own)
    own.processes.reject { |one| alive?(one.pid) }.map(&:pid)
  end

  it "ends with exit code 0 when its block does" do
    firebrick_only
    own = launch(%(, restart: "on-failure"), files: { "finish" => "" })
    assert_logged(/service jobs \(pid \d+\) ended with exit code 0.*not started again/, on: own)
    assert_equal "ended", service(own)["state"]
  end

  it "is interrupted by its signal where the block does not ask" do
    firebrick_only
    own = launch(app: <<~RUBY + Reloading::APP)
      Firebrick.service(:jobs, stop_signal: :int) do
        File.write("starts.log", Process.pid.to_s)
        sleep
      ensure
        File.write("ensure.log", $!.class.to_s)
      end
    RUBY
    pid = service_pid(own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    assert_equal ["Interrupt"], lines(own, "ensure.log")
    refute alive?(pid)
  end

  STUBBORN = <<~'RUBY'
    Firebrick.service("jobs", stop_timeout: 0.5) do
      trap("TERM") { nil }
      child = spawn("sleep", "1000")
      File.write("child.log", child.to_s)
      File.write("starts.log", Process.pid.to_s)
      sleep 1 while true
    end
  RUBY

  it "outlives its template, and later starts come from the next one" do
    firebrick_only
    own = launch
    pid = service_pid(own)
    template = templates(own).first.pid
    Process.kill("KILL", template)
    assert_logged(/a new template has loaded the app/, on: own)
    wait_until("the new template") { templates(own).map(&:pid) != [template] }
    assert alive?(pid)
    assert_equal 1, lines(own, "starts.log").size
    Process.kill("KILL", pid)
    service_pid(own, 2)
    assert_equal templates(own).first.pid.to_s, lines(own, "starts.log").last.split[1]
  end

  it "moves to new code when a reload is done, stays when it fails, and goes back with --undo" do
    firebrick_only
    own = launch
    first = service_pid(own)
    File.write(own.path("config.ru"), "raise 'broken'")
    assert_equal 1, reload(own).last
    assert alive?(first)
    own.stats
    deploy(own, "two")
    File.write(own.path("config.ru"), app_with(%(Firebrick.service("jobs", &block)\nFirebrick.service("extra") { sleep })))
    assert_reloads(own)
    second = service_pid(own, 2)
    refute alive?(first)
    assert_equal "two", lines(own, "starts.log").last.split[2]
    running = -> { own.stats["services"].select { |one| one["state"] == "running" }.map { |one| one["name"] } }
    wait_until("both to run") { running.call == %w[extra jobs] }
    assert_reloads(own, "--undo")
    third = service_pid(own, 3)
    refute alive?(second)
    assert_equal lines(own, "starts.log").first.split[1], lines(own, "starts.log").last.split[1], "of the old template"
    wait_until("one service") { own.stats["services"].map { |one| one["name"] } == ["jobs"] }
    assert alive?(third)
  end

  it "does not keep the old template, and stays when a worker becomes the template" do
    firebrick_only
    own = launch(workers: 2, settings: { rack: { refork_after: [20, 0] }, reload: { keep: "0s" } })
    pid = service_pid(own)
    template = templates(own).first.pid
    load = Load.new(own.address, clients: 4, path: "/20ms").start
    wait_until("a refork", within: 60) { own.stderr.include?("refork: all workers were forked from a warm one") }
    load.stop
    assert_empty load.errors
    wait_until("the old template to end") { !alive?(template) }
    assert alive?(pid)
    Process.kill("KILL", pid)
    second = service_pid(own, 2)
    assert_empty sockets(second)
    assert_equal "jobs", service(own)["name"]
    assert_equal "one", get("/", to: own).body
  end

  it "refuses names that are taken, naming both places, and options that cannot be" do
    firebrick_only
    twice = "Firebrick.service('jobs') { sleep }\n"
    {
      [twice, { services: { jobs: "sleep 1000" } }] =>
        /Firebrick\.service\("jobs"\) at config\.ru:1: firebrick\.toml:\d+ declares a service of this name/,
      [twice + twice, {}] => /at config\.ru:2: config\.ru:1 declares a service of this name/,
      ["Firebrick.service('my jobs') { sleep }\n", {}] => /at config\.ru:1: the name "my jobs": expected letters/,
      ["Firebrick.service('jobs', restart: 'maybe') { sleep }\n", {}] => /restart: "maybe": expected always, on-failure, never/,
      ["Firebrick.service('jobs', stop_signal: 'STOP') { sleep }\n", {}] => /stop_signal: "STOP": expected TERM, INT/,
      ["Firebrick.service('jobs', stop_timeout: '5s') { sleep }\n", {}] => /stop_timeout: "5s": expected seconds/,
      ["Firebrick.service('jobs', prefix: nil) { sleep }\n", {}] => /prefix: nil: expected true or false/,
      ["Firebrick.service('jobs')\n", {}] => /Firebrick\.service needs a block/
    }.each do |(code, settings), expected|
      own = Server.new(app: code + Reloading::APP, settings: settings, exit_code: 1)
      @own_servers << own
      own.launch
      assert_equal 1, own.wait_exit
      assert_match expected, own.stderr
    end
  end

  it "cannot be declared in a worker" do
    firebrick_only
    app = 'run ->(_env) { Firebrick.service("late") { sleep } }'
    own = start(app: app)
    assert_equal 500, get("/", to: own).status
    assert_logged(/Firebrick\.service\("late"\) at config\.ru:1: services are declared while the app is loaded/, on: own)
  end

  it "is nothing where another server loads the app" do
    script = <<~RUBY
      require "firebrick"
      Firebrick.service("jobs") { abort "it runs" }
      puts "loaded"
    RUBY
    lib = File.join(Server::ROOT, "worker/lib")
    assert_equal "loaded\n", IO.popen([RbConfig.ruby, "-I", lib, "-e", script], &:read)
  end
end
