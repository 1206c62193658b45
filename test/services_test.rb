# frozen_string_literal: true

# `[services]`: processes beside the workers that are started, restarted, moved to new code and stopped with the server.

require "support/case"
require "support/reloading"

class ServicesTest < Case
  parallel! slow: true

  include Reloading

  # Logs its start and its surroundings; ends when told to.
  SERVICE = <<~'RUBY'
    $stdout.sync = true
    trap("TERM") { File.write("stopped.log", "#{Process.pid}\n", mode: "a"); exit 0 }
    trap("USR1") { exit 3 }
    File.open("starts.log", "a") { |log| log.puts "#{Process.pid} #{Dir.pwd} #{ENV.values_at('PWD', 'RACK_ENV', 'QUEUE', 'NOTIFY_SOCKET').inspect}" }
    puts "hello\nfrom #{Process.pid}"
    warn "careful"
    sleep
  RUBY

  def launch(service = { command: %w[ruby service.rb] }, code: SERVICE, **options)
    launch_app(files: { "service.rb" => code }, settings: { services: { jobs: service } }, **options)
  end

  def lines(own, name) = File.exist?(own.path(name)) ? File.readlines(own.path(name), chomp: true) : []

  # Returns the process id of the service that was started last, once there have been that many starts.
  def service_pid(own, starts = 1)
    wait_until("#{starts} starts", within: 30) { lines(own, "starts.log").size >= starts }
    lines(own, "starts.log").last.to_i
  end

  def service(own) = own.stats["services"].fetch(0)

  def alive?(pid)
    Process.kill(0, pid)
    File.read("/proc/#{pid}/stat").split[2] != "Z"
  rescue Errno::ESRCH, Errno::ENOENT
    false
  end

  it "runs in the app's folder and environment, and its lines begin with its name" do
    firebrick_only
    own = launch({ command: "ruby service.rb", env: { "QUEUE" => "mails" } }, env: { "NOTIFY_SOCKET" => nil })
    pid = service_pid(own)
    _, dir, *rest = lines(own, "starts.log").first.split(" ", 3)
    assert_equal own.dir, dir
    assert_equal [own.dir, "production", "mails", nil].inspect, rest.join
    assert wait_until("its lines") { own.stdout.include?("jobs | hello\njobs | from #{pid}\n") }, own.stdout
    assert wait_until("its errors") { own.stderr.include?("jobs | careful\n") }, own.stderr
    wait_until("it to run") { own.stats["services"].any? }
    assert_equal ["jobs", pid, "running", 0], service(own).values_at("name", "pid", "state", "restarts")
    assert_match(/^firebrick_service_up\{service="jobs"\} 1$/, own.metrics)
    assert_match(/services +jobs running/, own.command_line("stats", own.dir).first)
  end

  it "is listed by check, with where it runs" do
    firebrick_only
    own = launch({ command: %w[ruby service.rb], environments: %w[staging] })
    out, _, code = own.command_line("check", own.dir, "-e", "production")
    assert_equal 0, code
    assert_match(/^  service +jobs: ruby service\.rb \(not in this environment\)$/, out)
    assert_match(/^  service +jobs: ruby service\.rb$/, own.command_line("check", own.dir, "-e", "staging").first)
  end

  it "is started again when it ends, after a pause, and the server serves on" do
    firebrick_only
    own = launch
    first = service_pid(own)
    Process.kill("KILL", first)
    second = service_pid(own, 2)
    refute_equal first, second
    Process.kill("USR1", second)
    third = service_pid(own, 3)
    assert_logged(/service jobs \(pid #{first}\) was ended by signal 9.*it starts again in 1 s/, on: own)
    assert_logged(/service jobs \(pid #{second}\) ended with exit code 3.*it starts again in 2 s/, on: own)
    wait_until("it to run") { service(own)["state"] == "running" }
    assert_equal [third, 2, "ended with exit code 3"], service(own).values_at("pid", "restarts", "last_end")
    assert_match(/^firebrick_service_restarts_total\{service="jobs"\} 2$/, own.metrics)
    assert_equal "one", get("/", to: own).body
  end

  it "serves although a service cannot be started" do
    firebrick_only
    own = launch({ command: "bin/nothing" })
    assert_equal "one", get("/", to: own).body
    assert_logged(%r{jobs \| firebrick: cannot run bin/nothing: No such file}, on: own)
    assert_logged(/service jobs.*exit code 127 \(the command cannot be run\)/, on: own)
    assert own.control("/status")["ready"]
  end

  it "stays down after exit code 0 with restart on-failure" do
    firebrick_only
    own = launch({ command: %w[ruby service.rb], restart: "on-failure" })
    Process.kill("TERM", service_pid(own))
    assert_logged(/ended with exit code 0.*not started again/, on: own)
    assert_equal "ended", service(own)["state"]
  end

  it "is asked to stop after the workers, and is gone with the server" do
    firebrick_only
    app = "#{Reloading::APP}\nFirebrick.before_worker_exit { sleep 0.3; File.write('worker.log', File.exist?('stopped.log').to_s) }"
    own = launch(app: app)
    pid = service_pid(own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    assert_equal ["false"], lines(own, "worker.log"), "the service had not stopped when the worker did"
    assert_equal [pid.to_s], lines(own, "stopped.log")
    refute alive?(pid)
  end

  it "is killed with all that it started when it does not stop in time" do
    firebrick_only
    code = "trap('TERM', 'IGNORE')\npid = spawn('sleep', '1000')\nFile.write('child.log', pid.to_s)\nFile.write('starts.log', Process.pid.to_s)\nsleep\n"
    own = launch({ command: %w[ruby service.rb], stop_timeout: "500ms" }, code: code)
    pid = service_pid(own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    refute alive?(pid)
    refute alive?(lines(own, "child.log").first.to_i)
  end

  it "ends when the server is killed, and so does what it started" do
    firebrick_only
    code = "pid = spawn('sleep', '1000')\nFile.write('child.log', pid.to_s)\nFile.write('starts.log', Process.pid.to_s)\nsleep\n"
    own = launch({ command: %w[ruby service.rb], stop_timeout: "1s" }, code: code, exit_code: :any)
    pid = service_pid(own)
    child = lines(own, "child.log").first.to_i
    own.signal("KILL")
    own.wait_exit
    assert wait_until("the service to end") { !alive?(pid) && !alive?(child) }
  end

  it "ends when its guard is killed, and is started again" do
    firebrick_only
    own = launch
    pid = service_pid(own)
    guard = File.read("/proc/#{pid}/stat").split[3].to_i
    Process.kill("KILL", guard)
    refute_equal pid, service_pid(own, 2)
    refute alive?(pid)
    assert_logged(/service jobs.*because its guard was/, on: own)
  end

  it "moves to new code when a reload is done, and stays when it fails" do
    firebrick_only
    own = launch
    first = service_pid(own)
    File.write(own.path("config.ru"), "raise 'broken'")
    assert_equal 1, reload(own).last
    assert_equal([first], lines(own, "starts.log").map(&:to_i))
    assert alive?(first)
    File.write(own.path("config.ru"), Reloading::APP)
    settings = SettingsFile.render(reload: { watch: "0s" }, services: { jobs: { command: %w[ruby service.rb], env: { "QUEUE" => "new" } }, extra: "sleep 1000" })
    File.write(own.path("firebrick.toml"), settings)
    assert_reloads(own)
    second = service_pid(own, 2)
    refute alive?(first)
    assert_includes lines(own, "starts.log").last, '"new"'
    wait_until("both to run") { own.stats["services"].map { |one| one.values_at("name", "state") } == [%w[extra running], %w[jobs running]] }
    assert_equal 0, own.stats["services"].last["restarts"]
    assert_reloads(own, "--undo")
    refute_equal second, service_pid(own, 3)
    refute_includes lines(own, "starts.log").last, '"new"'
    wait_until("one service") { own.stats["services"].map { |one| one["name"] } == ["jobs"] }
  end

  it "runs beside a static site, and only in its environments" do
    firebrick_only
    services = { on: { command: %w[ruby service.rb] }, off: { command: %w[ruby service.rb], environments: ["development"] } }
    own = start(files: { "index.html" => "hello", "static.json" => "{}", "service.rb" => SERVICE }, settings: { services: services })
    service_pid(own)
    wait_until("it to run") { own.stats["services"].any? }
    assert_equal(["on"], own.stats["services"].map { |one| one["name"] })
    assert_equal 1, lines(own, "starts.log").size
  end

  it "passes its output on as it is without a prefix" do
    firebrick_only
    own = launch({ command: %w[ruby service.rb], prefix: false })
    pid = service_pid(own)
    assert wait_until("its lines") { own.stdout.include?("\nfrom #{pid}\n") }, own.stdout
    refute_includes own.stdout, "jobs |"
  end
end
