# frozen_string_literal: true

# `firebrick top`: the live screen in a real terminal, and one screen as text and as JSON.

require "support/case"
require "support/load"
require "support/terminal"

class TopCommandTest < Case
  parallel!

  APP = <<~RUBY
    def slow(seconds) = sleep(seconds)
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/slow" then slow(Float(env["QUERY_STRING"][/\\d+/] || 20))
      when "/broken" then raise "on purpose"
      end
      [200, { "content-type" => "text/plain" }, ["hello"]]
    end)
  RUBY

  shared_server app: APP, workers: 2, threads: "3"

  def setup
    firebrick_only
    @terminals = []
  end

  def teardown
    @terminals&.each(&:close)
  end

  # The control socket of a server.
  def socket(of = server)
    Dir.glob(File.join(of.run_dir, "**", "*")).find { |path| File.socket?(path) } or flunk "no control socket in #{of.run_dir}"
  end

  def top(*args, control: socket, **options)
    Terminal.new(Server.binary, "top", "--control", control, "--interval", "300ms", *args, **options).tap { |terminal| @terminals << terminal }
  end

  # Runs `firebrick top` without a terminal: output, errors, exit code.
  def piped(*args, env: {})
    out, err, status = Open3.capture3(env, Server.binary, "top", *args, stdin_data: "")
    [out.force_encoding("UTF-8"), err, status.exitstatus]
  end

  # Keeps four clients sending requests.
  def under_load(of = server, path: "/")
    load = Load.new(of.address, clients: 4, path: path, pause: 0.01).start
    yield
  ensure
    load&.stop
  end

  it "shows figures that move, and quits cleanly" do
    terminal = top
    terminal.wait_for("Requests/s")
    ["Response time, ms", "Queue 0 of", "CPU", "Memory", "Errors/s", "busy threads", "no requests in flight", "q quit", /#{Regexp.escape(server.dir[-15..])} +pid/].each { |text| terminal.wait_for(text) }
    under_load { terminal.wait_for(/│[1-9][\d,.]*  peak/) }
    terminal.press("q")
    assert_equal 0, terminal.wait_exit
    assert terminal.restored?, "the terminal is not restored"
    refute_match(/panicked/, terminal.sent)
  end

  it "quits by Ctrl-C and by Escape" do
    ["\x03", "\e"].each do |key|
      terminal = top
      terminal.wait_for("Requests/s")
      terminal.press(key)
      assert_equal 0, terminal.wait_exit
      assert terminal.restored?
    end
  end

  it "restores the terminal on TERM" do
    terminal = top
    terminal.wait_for("Requests/s")
    Process.kill("TERM", terminal.pid)
    assert_equal(-15, terminal.wait_exit)
    assert terminal.restored?
  end

  it "ends when its terminal closes" do
    terminals = [top, top("--fleet", "unix:#{socket}", control: socket)]
    # The signal may not come: if a wrapper has its own session, the program sees only the end of the terminal.
    terminals << Terminal.new("setsid", "--wait", Server.binary, "top", "--control", socket).tap { |terminal| @terminals << terminal }
    terminals.each do |terminal|
      terminal.wait_for(/requests|req/i)
      terminal.hang_up
      assert wait_until(within: 20) { !terminal.running? }, "still running without a terminal"
    end
  end

  it "can be suspended and resumed" do
    terminal = top
    terminal.wait_for("Requests/s")
    terminal.press("\x1a")
    wait_until(within: 10) { terminal.stopped? } or flunk "it does not stop"
    wait_until { terminal.restored? } or flunk "the terminal is not restored while it is suspended"
    Process.kill("CONT", terminal.pid)
    wait_until(within: 10) { !terminal.restored? } or flunk "it does not resume"
    terminal.wait_for("Requests/s")
    terminal.press("q")
    assert_equal 0, terminal.wait_exit
    assert terminal.restored?
  end

  it "follows the size of its terminal, and reports when it is too small" do
    terminal = top
    terminal.wait_for("Requests/s")
    refute terminal.shows?("Response time p95"), "too narrow for that"
    terminal.resize(60, 200)
    terminal.wait_for("Response time p95")
    terminal.resize(10, 40)
    terminal.wait_for("This terminal is 40x10")
    terminal.resize(24, 80)
    terminal.wait_for("Requests/s")
    terminal.press("q")
    assert_equal 0, terminal.wait_exit
  end

  it "shows the slowest requests, and their Ruby lines on demand" do
    own = start(app: APP, workers: 1, threads: "3")
    slow = connect(own)
    slow.write(request("GET", "/slow?8"))
    terminal = top(control: socket(own))
    terminal.wait_for(%r{app +0:\d +GET /slow})
    terminal.press("\r")
    terminal.wait_for(/config\.ru:1:in/)
    assert terminal.shows?("▶ config.ru"), "the app's own line does not stand out"
    terminal.press("\e")
    terminal.wait_for("Requests/s")
    assert_status 200, slow.read_response
    terminal.wait_for("no requests in flight")
    terminal.press("q")
    assert_equal 0, terminal.wait_exit
  end

  it "pauses, sorts, changes its interval and shows help" do
    terminal = top
    terminal.wait_for("Requests/s")
    terminal.press("p")
    terminal.wait_for("PAUSED")
    terminal.press("p")
    wait_until { !terminal.shows?("PAUSED") } or flunk "it stays paused"
    terminal.press("s")
    terminal.wait_for("s by busy")
    terminal.press("+")
    terminal.wait_for("every 500 ms")
    terminal.press("?")
    terminal.wait_for("any key closes")
    terminal.press("x")
    wait_until { !terminal.shows?("any key closes") } or flunk "help stays"
  end

  it "works without colours" do
    plain = top(env: { "NO_COLOR" => "1" })
    plain.wait_for("Requests/s")
    refute_match(/\e\[(?:\d+;)*(?:3[0-7]|38;5;\d+|9[0-7])(?:;\d+)*m/, plain.sent)
    coloured = top
    coloured.wait_for("Requests/s")
    assert_match(/\e\[(?:\d+;)*(?:3[0-7]|38;5;\d+|9[0-7])(?:;\d+)*m/, coloured.sent)
  end

  it "waits for a stopped server, and reports a restart" do
    path = File.join(Dir.mktmpdir("firebrick-top"), "c.sock")
    first = start(app: APP, args: ["--control", path])
    terminal = top(control: path)
    terminal.wait_for("Requests/s")
    assert_empty first.finish
    terminal.wait_for("No response for")
    start(app: APP, args: ["--control", path])
    terminal.wait_for("server restarted")
    refute terminal.shows?("No response for")
  ensure
    FileUtils.remove_entry(File.dirname(path), true)
  end

  it "shows no worker parts for a static site" do
    own = start(files: { "index.html" => "home" }, workers: nil, threads: nil, environment: nil)
    terminal = top(control: socket(own))
    terminal.wait_for("static site")
    ["busy threads", "in flight", "Queue"].each { |text| refute terminal.shows?(text), text }
  end

  it "shows mruby handlers, if there are any" do
    skip "built without mruby" unless Server.mruby?
    handler = "lambda { |env| sleep 60 if env['PATH_INFO'] == '/waits'; [200, {}, ['hello']] }"
    own = start(app: APP, files: { "handler.rb" => handler }, settings: "front_threads = 1\n[routes]\n\"/mruby\" = \"handler.rb\"\n")
    connect(own).write(request("GET", "/mruby/waits"))
    terminal = top(control: socket(own))
    terminal.wait_for(%r{Handlers 0/s  failed 0/s   Tasks 1 of 100,000, 1 waiting})
    terminal.wait_for(/Heap █░+ \S+ [KM]iB of 256 MiB   VMs replaced 0/)
    under_load(own, path: "/mruby/hello") { terminal.wait_for(%r{Handlers [1-9][\d,.]*/s}) }
    terminal.wait_for("busy threads")
    terminal.press("q")
    assert_equal 0, terminal.wait_exit
    other = top
    other.wait_for("busy threads")
    refute other.shows?("Handlers"), "there are none"
  end

  it "shows services, and a range of workers with the reason of its last change" do
    services = { jobs: ["sh", "-c", "exec sleep 1000"], push: { command: ["sh", "-c", "exit 3"], restart: "never" } }
    own = start(app: APP, workers: "1:3", threads: "2:2", settings: { services: services })
    wait_until("services", within: 20) { own.stats["services"].map { |one| one["state"] } == %w[running ended] }
    pid = own.stats["services"].first["pid"]
    screens = [[24, 80], [50, 200]].map { |rows, columns| top(control: socket(own), rows: rows, columns: columns) }
    screens.each do |terminal|
      terminal.wait_for(/Service push  ended    \d+ s +0 restarts; .*exit code 3/)
      terminal.wait_for(/Service jobs  running  \d+ s +pid #{pid} +0 restarts/)
      terminal.wait_for(/^Workers 1 of 1:3$/)
      terminal.wait_for("busy threads")
    end
    Process.kill("TTIN", own.pid)
    screens.each { |terminal| terminal.wait_for(/Workers 2 of 1:3, set by a signal until the next reload   grew 1 → 2, \d+ s a/) }
    File.write(File.join(ENV["TEST_SCREENSHOTS"], "top.txt"), screens.map { |one| one.screen.join("\n") }.join("\n\n")) if ENV["TEST_SCREENSHOTS"]
    out, err, code = piped("--once", "--control", socket(own), env: { "COLUMNS" => "100" })
    assert_equal ["", 0], [err, code]
    assert_match(/^Workers 2 of 1:3, .*grew 1 → 2, \d+ s ago: by signal/, out)
    assert_match(/^Service jobs  running /, out)
  end

  it "requires a terminal, and names the modes without one" do
    out, err, code = piped("--control", socket)
    assert_equal ["", 2], [out, code]
    assert_match(/standard output is not a terminal.*firebrick top --once/, err)
  end

  it "reports that no server is running" do
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "config.ru"), "run App")
      out, err, code = piped(dir, "--once", env: { "XDG_RUNTIME_DIR" => dir })
      assert_equal ["", 1], [out, code]
      assert_match(/no Firebrick is running for .*firebrick serve/, err)
      terminal = Terminal.new(Server.binary, "top", dir, env: { "XDG_RUNTIME_DIR" => dir }).tap { |one| @terminals << one }
      assert_equal 1, terminal.wait_exit
      assert_match(/no Firebrick is running for/, terminal.sent)
      refute_includes terminal.sent, "\e[?1049h"
    end
  end

  it "reports invalid arguments" do
    _, err, code = piped("--interval", "soon", "--control", socket)
    assert_equal 2, code
    assert_match(/--interval soon: expected a time such as 500ms/, err)
    _, err, code = piped("--json", "--control", socket)
    assert_equal 2, code
    assert_match(/--once/, err)
  end

  it "prints one screen as text" do
    out, err, code = under_load { piped("--once", "--interval", "1s", "--control", socket, env: { "COLUMNS" => "90" }) }
    assert_equal ["", 0], [err, code]
    ["Response time, ms", "busy threads", "Memory", "Errors/s"].each { |text| assert_includes out, text }
    assert_match(/^total +\d|│total +\d/, out)
    refute_includes out, "\e"
    assert_operator out.lines.map { |line| line.chomp.size }.max, :<=, 90
  end

  it "prints one JSON object, for the interval only" do
    own = start(app: APP, workers: 2, threads: "3")
    10.times { assert_status 200, get("/slow?0", to: own) }
    2.times { assert_status 500, get("/broken", to: own) }
    before = own.stats["requests"]["total"]
    out, err, code = under_load(own) { piped("--once", "--json", "--interval", "2s", "--control", socket(own)) }
    assert_equal ["", 0], [err, code]
    sample = JSON.parse(out)
    assert_equal ["firebrick top", 1], sample.values_at("kind", "version")
    assert_in_delta 2, sample["interval_s"], 1.5
    assert_operator sample["requests_per_s"], :>, 0
    assert_equal 0, sample["errors_per_s"]["5xx"], "errors from before the interval"
    assert_operator sample["total_ms"]["count"], :<=, sample["stats"]["requests"]["total"] - before
    assert_operator sample["total_ms"]["p99"], :>=, sample["total_ms"]["p50"]
    assert_equal([0, 1], sample["workers"].map { |worker| worker["index"] })
    assert_in_delta sample["requests_per_s"], sample["workers"].sum { |worker| worker["requests_per_s"] }, sample["requests_per_s"] * 0.5
    assert_operator sample["cpus"], :>, 0
    assert_operator sample["pss_bytes"], :>, 1 << 20
    assert_kind_of Array, sample["requests"]
    assert_equal 2, sample["stats"]["requests"]["5xx"]
  end
end
