# frozen_string_literal: true

# `firebrick leaks`: two heap dumps of a worker by forked processes, and what has grown between them.

require "support/case"
require "support/rails_app"

LEAKS_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  KEPT = []
  RING = Array.new(30)
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
    when "/ring" then RING.push("r" * 3000).shift
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

  # The pause between two requests: enough of them come, and other tests have the processor meanwhile.
  PAUSE = 0.01

  # Requests until the command has ended; returns its value.
  def beside(command, own, *paths)
    while command.alive?
      paths.each { |path| get(path, to: own) }
      sleep PAUSE
    end
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
    report = leaks(own, "/leak", "/ring", time: "8s", args: ["--trace"])
    first = report["growth"].first
    assert_equal ["String", "#{own.path('config.ru')}:#{LEAK_LINE + 1}"], first.values_at("class", "at")
    assert report.dig("after", "after", "traced")
    refute report["growth"].any? { |one| one["at"].to_s.end_with?(":#{LEAK_LINE + 2}") }, "the ring does not grow: #{report['growth']}"
    again = leaks(own, "/ring", time: "1s")
    refute again.dig("before", "after", "traced"), "it still records"
    assert_empty(again["growth"].filter_map { |one| one["at"] })
  end

  # The routes of what grows at a line, as [route, share].
  def routes_at(report, line)
    found = report["growth"].find { |one| one["at"].to_s.end_with?(line) }
    assert found, "nothing grows at #{line}: #{report['growth']}"
    found.fetch("routes").map { |one| one.values_at("route", "share") }
  end

  # Returns the number of the line with the mark.
  def line_of(app, mark) = app.lines.index { |line| line.include?(mark) } + 1

  ROUTED_APP = <<~'RUBY'
    KEPT = []
    LOCK = Mutex.new
    KEEP = ->(text) { LOCK.synchronize { KEPT << text } }
    run lambda { |env|
      # The app is loaded in another process.
      $thread ||= Thread.new { loop { sleep 0.002; KEEP["t" * 2000] } } # thread
      case env["PATH_INFO"]
      when "/show", "/index"
        env["firebrick.route"] = "posts##{env["PATH_INFO"].delete("/")}"
        texts = env["PATH_INFO"] == "/show" ? 9 : 1
        texts.times { KEEP["x" * 2000] } # shared
      when "/wait"
        env["firebrick.route"] = "posts#wait"
        sleep 0.05
        KEEP[Enumerator.new { |all| loop { all << "w" * 2000 } }.next] # waited
      when "/else" then KEEP["e" * 2000] # else
      when "/started" then env["firebrick.route"] = "posts#started"; Thread.new { KEEP["s" * 2000] }.join # started
      end
      [200, {}, ["fine"]]
    }
  RUBY

  # Each path is requested by a client of its own, so that requests overlap.
  def routed(own, *paths)
    paths.each { |path| 20.times { get(path, to: own) } }
    command = begin_leaks(own, "4s", "--json", "--trace")
    paths.map { |path| Thread.new { beside(command, own, path) } }.each(&:join)
    out, err, code = command.value
    assert_equal 0, code, err
    JSON.parse(out)
  end

  [["threads", { threads: "4:4", fibers: nil }], ["fibers", { threads: "1:1", settings: { fibers: 20 } }]].each do |mode, options|
    it "names the routes that leak, in #{mode}" do
      own = start(app: ROUTED_APP, workers: 1, **options)
      report = routed(own, "/show", "/index", "/wait", "/else", "/started")
      at = ->(mark) { routes_at(report, "config.ru:#{line_of(ROUTED_APP, "# #{mark}")}") }
      shared = at["shared"]
      assert_equal %w[posts#show posts#index], shared.map(&:first).first(2), shared
      assert_in_delta 1, shared.first(2).sum(&:last), 0.05
      assert_operator shared[0].last, :>, 0.6
      { "waited" => "posts#wait", "else" => "(other)", "thread" => "(none)", "started" => "(none)" }.each do |mark, route|
        first, share = at[mark].first
        assert_equal route, first, "#{mark}: #{at[mark]}"
        assert_operator share, :>, 0.95, "#{mark}: #{at[mark]}"
      end
      again = leaks(own, "/show", time: "1s")
      assert_empty(again["growth"].flat_map { |one| one["routes"].to_a }, "it still records")
    end
  end

  it "shows the routes in the table, the leaking one first" do
    own = start(app: ROUTED_APP.lines.reject { |line| line.include?("# thread") }.join, workers: 1)
    command = begin_leaks(own, "4s", "--trace")
    out, err, code = beside(command, own, "/show", "/else")
    assert_equal 0, code, err
    titles, first = out.lines.drop_while { |line| !line.include?("bytes/request") }
    assert_match(/allocated at +route$/, titles)
    assert_match(/String +config\.ru:\d+ +posts#show \d+ %$/, first)
    assert_match(/ \(other\) \d+ %$/, out)
  end

  it "knows the routes of a worker whose heap the app compacts by itself, and turns that on again" do
    skip "this Ruby cannot compact" unless GC.respond_to?(:auto_compact=)
    app = <<~'RUBY'
      GC.auto_compact = true rescue (puts "none")
      KEPT = []
      run lambda { |env|
        env["firebrick.route"] = "posts#show"
        KEPT << "x" * 2000
        GC.start if KEPT.size % 50 == 0
        [200, {}, [GC.auto_compact.to_s]]
      }
    RUBY
    own = start(app: app, workers: 1)
    skip "this system cannot compact" unless get("/", to: own).body == "true"
    report = leaks(own, "/", time: "4s", args: ["--trace"])
    assert_equal "posts#show", routes_at(report, "config.ru:5").dig(0, 0)
    assert_operator routes_at(report, "config.ru:5").dig(0, 1), :>, 0.95
    wait_until("compaction is on again") { get("/", to: own).body == "true" }
  end

  it "knows nothing of objects that the app's own compaction may have moved, and goes on" do
    skip "this Ruby cannot compact" unless GC.respond_to?(:compact)
    app = <<~'RUBY'
      KEPT = []
      run lambda { |env|
        env["firebrick.route"] = "posts#show"
        env["PATH_INFO"] == "/compact" ? GC.compact : KEPT << "x" * 2000
        [200, {}, ["fine"]]
      }
    RUBY
    own = start(app: app, workers: 1)
    command = begin_leaks(own, "6s", "--json", "--trace")
    until_compacted = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 4
    while command.alive?
      20.times { get("/", to: own) }
      sleep PAUSE
      get("/compact", to: own) if Process.clock_gettime(Process::CLOCK_MONOTONIC) < until_compacted
    end
    out, err, code = command.value
    assert_equal 0, code, err
    shares = routes_at(JSON.parse(out), "config.ru:4").to_h
    # Ruby 3.1 forgets the places, too.
    assert_includes [%w[posts#show], %w[(unknown) posts#show]], shares.keys.sort
    after = JSON.parse(out).dig("after", "groups").select { |group| group["class"] == "String" && group["bytes"] > 100_000 }
    unknown = after.flat_map { |group| group["at"] ? group["routes"].select { |one| one["route"] == "(unknown)" } : [group] }
    assert_operator unknown.sum { |one| one["count"] }, :>, 100
  end

  it "leaves no recording in a process that the app forks" do
    app = <<~'RUBY'
      require "objspace"
      run lambda { |env|
        reader, writer = IO.pipe
        pid = fork do
          writer.write(ObjectSpace.allocation_sourcefile("x" * 3000).inspect)
          exit!(0)
        end
        writer.close
        Process.wait(pid)
        [200, {}, ["#{reader.read} #{ObjectSpace.allocation_sourcefile("x" * 3000) ? 'on' : 'off'}"]]
      }
    RUBY
    own = start(app: app, workers: 1)
    assert_equal "nil off", get("/", to: own).body
    command = begin_leaks(own, "4s", "--trace")
    wait_until("it records") { get("/", to: own).body == "nil on" }
    assert_equal 0, command.value.last
    assert_equal "nil off", get("/", to: own).body
  end

  it "takes the names of Sinatra's routes" do
    skip "sinatra is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-e", "gem 'sinatra'", out: File::NULL, err: File::NULL)
    app = <<~'RUBY'
      require "sinatra/base"
      KEPT = []
      class App < Sinatra::Base
        get("/carts/:id") { KEPT << "c" * 2000; "kept" } # leak
        get("/posts/:id") { "p" * 2000 }
      end
      run App
    RUBY
    own = start(app: app, workers: 1)
    report = leaks(own, "/carts/7", "/posts/7", time: "4s", args: ["--trace"])
    assert_match(/\Aconfig\.ru:#{line_of(app, '# leak')}\z/, report["growth"].first["at"].delete_prefix("#{own.dir}/"))
    assert_equal "GET /carts/:id", report["growth"].first.dig("routes", 0, "route")
  end

  it "takes the names of Rails' actions" do
    rails_only
    controller = <<~'RUBY'
      class LeaksController < ActionController::Base
        KEPT = []

        def show
          KEPT << "c" * 20_000 # leak
          head :ok
        end

        def index = head(:ok)
      end
    RUBY
    table = RailsApp.files.fetch("config/routes.rb").sub(/^end\s*\z/, "  get \"/x/:action\", controller: \"leaks\"\nend\n")
    files = { "app/controllers/leaks_controller.rb" => controller, "config/routes.rb" => table }
    own = start(**RailsApp.options(workers: 1, threads: "1:1", files: files))
    report = leaks(own, "/x/show", "/x/index", time: "6s", args: ["--trace"])
    leak = "app/controllers/leaks_controller.rb:#{line_of(controller, '# leak')}"
    assert_equal leak, report["growth"].first["at"].delete_prefix("#{own.dir}/")
    assert_equal "leaks#show", report["growth"].first.dig("routes", 0, "route")
    assert_operator report["growth"].first.dig("routes", 0, "share"), :>, 0.95
  end

  it "stops recording when the command is killed, at the latest after its time" do
    own = server
    # The traces of a killed command.
    socket = UNIXSocket.new(Dir[File.join(own.run_dir, "firebrick", "*.sock")].first)
    socket.write("POST /heap?dump=0&trace=3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    assert_match(%r{\AHTTP/1.1 200}, socket.read)
    assert leaks(own, "/leak", time: "1s").dig("before", "after", "traced"), "it does not record"
    sleep 3
    refute leaks(own, "/leak", time: "1s").dig("before", "after", "traced"), "it still records"
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
    while command.alive?
      times << elapsed { get("/pid", to: own) }
      sleep PAUSE
    end
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
