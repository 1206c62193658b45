# frozen_string_literal: true

# `firebrick leaks`: two heap dumps of a worker by forked processes, and what has grown between them.

require "support/case"

LEAKS_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  KEPT = []
  RING = Array.new(50)
  File.write("hooks.txt", "")
  note = ->(line) { File.write("hooks.txt", "#{line}\n", mode: "a") }
  at_exit { note["at_exit #{Process.pid}"] if File.directory?(".") && $serving }
  Process.singleton_class.prepend(Module.new { define_method(:_fork) { super().tap { |pid| note["_fork"] if pid.zero? && $serving } } })
  DROPPED = Object.new
  run lambda { |env|
    $serving = true
    case env["PATH_INFO"]
    when "/leak"
      KEPT << ("token=geheim-#{KEPT.size} " + "x" * 3050) # the leak
    when "/ring" then RING[rand(50)] = "r" * 3000
    when "/pid" then next [200, text, [Process.pid.to_s]]
    when "/finalizer"
      20.times { ObjectSpace.define_finalizer(Object.new, proc { note["finalizer #{Process.pid}"] }) }
    when "/fill"
      KEPT << Array.new(env["QUERY_STRING"].to_i) { |n| "filling #{n}" }
    when "/busy" then sleep 0.3; 1_000_000.times { Object.new }
    when "/hold"
      KEPT << TCPServer.new("127.0.0.1", 0)
      next [200, text, [KEPT.last.addr[1].to_s]]
    end
    [200, text, ["fine"]]
  }
RUBY

class LeaksTest < Case
  parallel! slow: 40

  LEAK_LINE = LEAKS_APP.lines.index { |line| line.include?("# the leak") } + 1

  def before_setup
    super
    firebrick_only
  end

  def server(**options)
    start(app: "require \"socket\"\n#{LEAKS_APP}", leaves: ["hooks.txt"], **options)
  end

  # Starts the command; the value is [stdout, stderr, exit code].
  def begin_leaks(own, *args) = Thread.new { own.command_line("leaks", *args) }

  # Requests until the command has ended; returns its value.
  def beside(command, own, *paths)
    paths.each { |path| get(path, to: own) } while command.alive?
    command.value
  end

  # The JSON of `firebrick leaks`, which runs beside requests for these paths.
  def leaks(own, *paths, time: "2s", args: [])
    paths.each { |path| 50.times { get(path, to: own) } }
    command = begin_leaks(own, time, "--json", *args)
    out, err, code = beside(command, own, *paths)
    assert_equal 0, code, err
    JSON.parse(out)
  end

  # The processes that write dumps.
  def writers(own) = own.processes.select { |one| Processes.command(one.pid).include?("heap dump") }

  def nothing_left(own)
    wait_until("no process writes a dump", within: 60) { writers(own).empty? }
    assert_empty Dir.children(own.temp_dir).grep_v(/\Afirebrick/)
  end

  it "names the class that leaks, and what each request leaves behind" do
    own = server
    report = leaks(own, "/leak")
    first = report["growth"].first
    assert_equal ["String", nil], first.values_at("class", "at")
    assert_in_delta report["requests"], first["count"], 0.1 * report["requests"] + 5
    assert_in_delta 3_100, first["bytes_per_request"], 300
    nothing_left(own)
  end

  it "names the line with --trace, and stops recording" do
    own = server
    report = leaks(own, "/leak", "/ring", time: "4s", args: ["--trace"])
    first = report["growth"].first
    assert_equal ["String", "#{own.path('config.ru')}:#{LEAK_LINE + 1}"], first.values_at("class", "at")
    assert report.dig("after", "after", "traced")
    refute report["growth"].any? { |one| one["at"].to_s.end_with?(":#{LEAK_LINE + 2}") }, "the ring does not grow: #{report['growth']}"
    again = leaks(own, "/ring", time: "1s")
    refute again.dig("before", "after", "traced"), "it still records"
    assert_empty(again["growth"].filter_map { |one| one["at"] })
  end

  it "says that nothing grows" do
    own = server
    500.times { get("/ring", to: own) }
    command = begin_leaks(own, "2s")
    out, err, code = beside(command, own, "/ring", "/")
    assert_equal 0, code, err
    assert_includes out, "nothing grows"
    assert_match(/memory: [\d.]+ MiB resident; Ruby's heap has [\d.]+ MiB, of which \d+ % is empty/, out)
    assert_match(/dump, [\d.]+ MiB/, err)
  end

  it "shows how Strings begin only if asked, and no secrets" do
    own = server
    plain = leaks(own, "/leak", time: "1s")
    refute_includes plain.to_s, "geheim"
    refute_includes plain.to_s, "xxxx"
    first = leaks(own, "/leak", time: "4s", args: ["--trace", "--examples"])["growth"].first
    assert_includes first["examples"].first, "token=(not shown)"
    refute_includes first.to_s, "geheim"
  end

  it "runs no code of the app in the process that writes, and keeps nothing of the worker open" do
    own = server
    get("/finalizer", to: own)
    port = get("/hold", to: own).body.to_i
    pid = get("/pid", to: own).body.to_i
    get("/fill?300000", to: own)
    command = begin_leaks(own, "1s", "--json")
    wait_until("a process writes") { writers(own).any? }
    writer = writers(own).first.pid
    sockets = Dir["/proc/#{writer}/fd/*"].filter_map { |fd| File.readlink(fd) rescue nil }.grep(/socket:/)
    assert_equal 0, beside(command, own, "/pid").last
    assert_empty sockets
    assert_operator port, :>, 0
    assert_equal pid, get("/pid", to: own).body.to_i
    assert_empty(File.readlines(own.path("hooks.txt"), chomp: true).reject { |line| line == "finalizer #{pid}" })
  end

  it "lets the worker go on while a large heap is written" do
    own = server
    4.times { get("/fill?250000", to: own) }
    command = begin_leaks(own, "1s", "--json")
    times = []
    times << elapsed { get("/pid", to: own) } while command.alive?
    out, err, code = command.value
    assert_equal 0, code, err
    report = JSON.parse(out)
    took = report.dig("before", "dump_ms") / 1000
    assert_operator report.dig("before", "dump_bytes"), :>, 100 << 20
    assert_operator report.dig("before", "objects"), :>, 1_000_000
    # It would be as long if the worker itself wrote the dump.
    assert_operator times.max, :<, took / 2
    assert_operator report.dig("before", "stopped_ms"), :<, took * 1000 / 4
    assert_operator times.size, :>, 20
  end

  it "says why there is no dump when the writing process is killed" do
    own = server
    get("/fill?400000", to: own)
    command = begin_leaks(own, "1s")
    wait_until("a process writes") { writers(own).any? }
    Process.kill("KILL", writers(own).first.pid)
    _, err, code = command.value
    assert_equal 1, code
    assert_includes err, "the process that wrote the dump was killed by SIGKILL (did memory run out?)"
    nothing_left(own)
    assert_equal "fine", get("/", to: own).body
  end

  it "ends with its worker, and says that another one has its place" do
    own = server
    get("/fill?400000", to: own)
    pid = get("/pid", to: own).body.to_i
    command = begin_leaks(own, "1s")
    wait_until("a process writes") { writers(own).any? }
    Process.kill("KILL", pid)
    _, err, code = command.value
    assert_equal 1, code
    assert_includes err, "worker 0 (pid #{pid}): the worker ended before its dump was complete"
    nothing_left(own)
    wait_until("another worker") { get("/pid", to: own).body.to_i.then { |other| other.positive? && other != pid } }
    _, err, code = own.command_line("leaks", "1s", "--pid", pid.to_s)
    assert_equal 1, code
    assert_includes err, "no worker has the process id #{pid}: there are "
    second = own.begin_command("leaks", "3s")
    wait_until("the first dump") { second.output.include?("the second in") }
    Process.kill("KILL", get("/pid", to: own).body.to_i)
    assert_equal 1, second.wait.code
    assert_match(/worker \d \(pid \d+\) has been replaced/, second.output)
  end

  it "takes one dump at a time, and ends when its reader is gone" do
    own = server
    get("/fill?400000", to: own)
    command = own.begin_command("leaks", "1s")
    wait_until("a process writes") { writers(own).any? }
    _, err, code = own.command_line("leaks", "1s")
    assert_equal 1, code
    assert_includes err, "another dump is being taken"
    command.kill
    nothing_left(own)
  end

  it "refuses workers that cannot be forked" do
    own = server(env: { "FIREBRICK_PURE" => "1" }, fibers: nil)
    _, err, code = own.command_line("leaks", "1s")
    assert_equal 1, code
    assert_includes err, "FIREBRICK_PURE"
  end

  it "names mistyped options" do
    own = server
    { %w[soon] => "soon: expected a time", %w[1s 2s] => "expected one time", %w[--worker x] => "--worker x: expected the number",
      %w[--examples] => "--examples goes with --trace", %w[--top 0] => "--top 0: expected a number", %w[--worker 1 --pid 2] => "give one of them",
      %w[1s --worker 7] => "there is no worker 7: there are 0 (pid" }.each do |words, message|
      _, err, code = own.command_line("leaks", *words)
      refute_equal 0, code
      assert_includes err, message
    end
  end
end
