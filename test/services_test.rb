# frozen_string_literal: true

# `[services]`: processes beside the workers that are started, restarted, moved to new code and stopped with the server.

require "support/case"
require "support/services"

class ServicesTest < Case
  parallel! slow: true

  include Services

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

  def launch_with(code) = launch(app: "#{Reloading::APP}\n#{code}")

  def launch_bare = launch({ command: %w[ruby service.rb], prefix: false })

  def launch_stubborn(**options)
    code = "trap('TERM', 'IGNORE')\npid = spawn('sleep', '1000')\nFile.write('child.log', pid.to_s)\nFile.write('starts.log', Process.pid.to_s)\nsleep\n"
    launch({ command: %w[ruby service.rb], stop_timeout: "500ms" }, code: code, **options)
  end

  it "runs in the app's folder and environment, and its lines begin with its name" do
    firebrick_only
    own = launch({ command: "ruby service.rb", env: { "QUEUE" => "mails" } }, env: { "NOTIFY_SOCKET" => nil })
    pid = service_pid(own)
    _, dir, *rest = lines(own, "starts.log").first.split(" ", 3)
    assert_equal own.dir, dir
    assert_equal [own.dir, "production", "mails", nil].inspect, rest.join
    assert_runs(own, pid)
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
end
