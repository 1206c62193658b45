# frozen_string_literal: true

# Statistics of mruby handlers: in /stats, in `firebrick stats`, in `firebrick top`, and in the log when one cannot be
# interrupted.

require "support/case"

class MrubyStatsTest < Case
  parallel!

  HANDLER = <<~'RUBY'
    PATHS = {
      "/hello" => lambda { |env| [200, {}, ["Hello"]] },
      "/waits" => lambda { |env| sleep 1; [200, {}, ["waited"]] },
      "/waits-long" => lambda { |env| sleep 60; [200, {}, ["waited"]] },
      "/fails" => lambda { |env| raise "on purpose" },
      "/fails-late" => lambda { |env| [200, {}, Class.new { def each; yield "begun"; sleep 0.01; raise "on purpose"; end }.new] },
      "/says-500" => lambda { |env| [500, {}, ["said"]] },
      "/task" => lambda { |env| task { sleep 60 }; [200, {}, ["begun"]] },
      "/rescues" => lambda { |env| while true; begin; "x" * 100; rescue Exception; end; end },
      "/keeps" => lambda { |env| ($kept ||= []) << "x" * 2_000_000; [200, {}, ["kept"]] }
    }
    lambda { |env| (PATHS[env["PATH_INFO"]] || lambda { |_| [404, {}, []] }).call(env) }
  RUBY

  def settings(threads: 1, deadline: "30s", max_tasks: 8)
    <<~TOML
      front_threads = #{threads}
      [mruby]
      heap = "32MiB"
      request_heap = "8MiB"
      step_time = "200ms"
      deadline = "#{deadline}"
      max_tasks = #{max_tasks}
      [routes]
      "/" = "handler.rb"
    TOML
  end

  def setup
    mruby_only
  end

  def serve(files: {}, **limits)
    start(files: { "handler.rb" => HANDLER }.merge(files), settings: settings(**limits), workers: nil, threads: nil)
  end

  # Returns the field for this server.
  def handlers(of)
    of.stats.fetch("handlers")
  end

  # Returns the field, once the block accepts it.
  def handlers_when(of, what)
    last = nil
    wait_until(within: 20) { yield(last = handlers(of)) } or flunk "#{what} not seen in #{last}\n#{of.report}"
    last
  end

  def waiting_clients(of, path, count)
    Array.new(count) { connect(of).tap { |one| one.write(request("GET", path)) } }
  end

  it "is null without routes" do
    own = start(files: { "index.html" => "home" }, workers: nil, threads: nil)
    assert_nil own.stats.fetch("handlers")
    out, = own.command_line("stats", own.dir)
    refute_includes out, "mruby"
  end

  it "counts requests, reports limits, and sums up its threads" do
    own = serve(threads: 2)
    12.times { assert_status 200, get("/hello", to: own) }
    assert_status 500, get("/says-500", to: own)
    figures = handlers(own)
    assert_equal [13, 0, 0, 0, 0], figures.values_at("requests", "failures", "refused", "tasks", "waiting")
    assert_equal [16, 64 << 20], figures.values_at("tasks_max", "heap_max_bytes")
    threads = figures["threads"]
    assert_equal([[0, 8, 32 << 20], [1, 8, 32 << 20]], threads.map { |one| one.values_at("index", "tasks_max", "heap_max_bytes") })
    %w[requests heap_bytes].each { |name| assert_equal figures[name], threads.sum { |one| one[name] }, name }
    threads.each { |one| assert_includes (100 << 10)..(32 << 20), one["heap_bytes"] }
  end

  it "counts waiting requests, and forgets disconnected ones" do
    own = serve
    clients = waiting_clients(own, "/waits", 3)
    figures = handlers_when(own, "the waiting requests") { |now| now["waiting"] == 3 }
    assert_equal [3, 3], figures.values_at("tasks", "requests")
    assert_equal([200] * 3, clients.map { |one| one.read_response("GET").status })
    figures = handlers_when(own, "the end of the tasks") { |now| now["tasks"].zero? }
    assert_equal [0, 0], figures.values_at("waiting", "failures")
    assert_equal 3, figures["threads"].first["tasks_most"]

    waiting_clients(own, "/waits-long", 4).each { |one| handlers_when(own, "one more") { |now| now["waiting"].positive? } && one.close }
    figures = handlers_when(own, "the disconnects") { |now| now["requests"] == 7 && now["tasks"].zero? }
    assert_equal [0, 0], figures.values_at("waiting", "failures"), "a disconnected client is not a failure"
  end

  it "counts tasks without a request" do
    own = serve
    2.times { assert_status 200, get("/task", to: own) }
    figures = handlers_when(own, "the tasks") { |now| now["waiting"] == 2 }
    assert_equal [2, 2], figures.values_at("requests", "tasks")
  end

  it "counts failures: exceptions, deadlines, and refused requests" do
    own = serve(deadline: "1s", max_tasks: 2)
    assert_status 500, get("/fails", to: own)
    assert_equal [1, 1, 0], handlers(own).values_at("requests", "failures", "refused")
    late = waiting_clients(own, "/waits-long", 2)
    handlers_when(own, "who waits") { |now| now["waiting"] == 2 }
    assert_status 503, get("/hello", to: own)
    assert_equal [4, 2, 1], handlers(own).values_at("requests", "failures", "refused")
    assert_equal([504, 504], late.map { |one| one.read_response("GET").status })
    figures = handlers_when(own, "the end of the tasks") { |now| now["tasks"].zero? }
    assert_equal [4, 4, 1, 0], figures.values_at("requests", "failures", "refused", "waiting")
    connect(own).tap { |one| one.write(request("GET", "/fails-late")) }
    figures = handlers_when(own, "a failure after the head") { |now| now["failures"] == 5 }
    assert_equal 5, figures["requests"]
  end

  it "counts the heap as it grows" do
    own = serve
    before = handlers(own)["heap_bytes"]
    3.times { assert_status 200, get("/keeps", to: own) }
    assert_operator handlers(own)["heap_bytes"] - before, :>, 5_000_000
  end

  it "keeps counting when a VM is replaced, and drops the requests lost with it" do
    own = serve
    first = handlers(own)["heap_bytes"]
    2.times { assert_status 200, get("/keeps", to: own) }
    lost = waiting_clients(own, "/waits-long", 3)
    handlers_when(own, "who waits") { |now| now["waiting"] == 3 }
    assert_status 500, get("/rescues", to: own)
    assert_status 200, get("/hello", to: own)
    broken = own.stderr.scan("the mruby VM of a front thread broke").size
    handlers_when(own, "the new VM") { |now| now["vms_replaced"] == broken }
    skip "this mruby can interrupt it without losing the VM" if broken.zero?
    assert_equal([500] * 3, lost.map { |one| one.read_response("GET").status })
    figures = handlers_when(own, "the old tasks to be gone") { |now| now["tasks"].zero? && now["waiting"].zero? }
    assert_equal [7, 4, 1], figures.values_at("requests", "failures", "vms_replaced")
    figures = handlers_when(own, "the old VM's memory to be freed") { |now| now["heap_bytes"] < first + 3_000_000 }
    assert_operator figures["heap_bytes"], :>, first / 2
  end

  it "counts reloads of changed handlers" do
    own = serve(threads: 2)
    assert_equal 0, handlers(own)["reloads"]
    File.write(own.path("handler.rb"), "lambda { |env| [200, {}, ['new']] }")
    figures = handlers_when(own, "the new handler") { |now| now["threads"].all? { |one| one["reloads"] == 1 } }
    assert_equal [1, 0], figures.values_at("reloads", "vms_replaced")
    assert_equal "new", get("/hello", to: own).body
  end

  it "appears in the table, with a line for each thread" do
    own = serve(threads: 2)
    3.times { get("/hello", to: own) }
    get("/fails", to: own)
    out, err, code = own.command_line("stats", own.dir)
    assert_equal ["", 0], [err, code]
    assert_match(/\AFirebrick \S+ · handlers on mruby · /, out.force_encoding("UTF-8"))
    lines = out.lines.map(&:split)
    assert_includes lines, %w[mruby requests failed refused tasks/max waiting most heap/max MiB new VMs reloads]
    threads = lines.select { |line| line.first == "thread" }
    assert_equal([%w[thread 0], %w[thread 1]], threads.map { |line| line.first(2) })
    assert_equal(4, threads.sum { |line| line[2].to_i })
    assert_equal %w[all 4 1 0 0/16 0], lines.find { |line| line.first == "all" }.first(6)
  end

  it "appears in top's page and JSON" do
    own = serve
    waiting_clients(own, "/waits-long", 2)
    handlers_when(own, "who waits") { |now| now["waiting"] == 2 }
    out, err, code = own.command_line("top", own.dir, "--once", "--interval", "200ms")
    assert_equal ["", 0], [err, code]
    assert_match(%r{^Handlers 0/s  failed 0/s   Tasks 2 of 8, 2 waiting$}, out.force_encoding("UTF-8"))
    assert_match(/^Heap █+░+ \S+ [KM]iB of 32\.0 MiB   VMs replaced 0$/, out)
    out, = own.command_line("top", own.dir, "--once", "--interval", "200ms", "--json")
    assert_equal [0, 2, 2, 8], JSON.parse(out)["handlers"].values_at("requests_per_s", "tasks", "waiting", "tasks_max")
  end

  it "leaves Puma's format unchanged" do
    own = serve
    socket = Dir.glob(File.join(own.run_dir, "**", "*")).find { |path| File.socket?(path) }
    response = UNIXSocket.open(socket) do |stream|
      stream.write("GET /puma/stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      stream.read
    end
    assert_match(%r{\AHTTP/1\.1 200}, response)
    refute_match(/handlers|mruby/, response)
  end

  it "logs the handler and the request that cannot be interrupted" do
    # A search that takes many times step_time inside one C function, before and after a wait; with mruby 4.0 it takes seconds.
    search = "('a' * 800_000).index('a' * 400_000 + 'b'); [200, {}, ['found nothing']]"
    files = { "busy.rb" => "lambda { |env| sleep 0.01 if env['QUERY_STRING'] == 'later'; #{search} }" }
    settings = <<~TOML
      front_threads = 1
      [log]
      error = "errors.log"
      [mruby]
      step_time = "20ms"
      [routes]
      "/search" = "busy.rb"
    TOML
    own = start(files: files, settings: settings, workers: nil, threads: nil)
    %w[/search/x?now /search/y?later].each do |target|
      client = connect(own, deadline: 90)
      client.write(request("GET", target))
      line = wait_until(within: 30) { File.readlines(own.path("errors.log")).grep(/cannot be stopped/).grep(/GET #{Regexp.escape(target)}/).first }
      assert line, File.read(own.path("errors.log"))
      assert_match(%r{\A\[\d{4}-\d\d-\d\dT\S+\] firebrick\[#{own.pid}\]: info: GET #{Regexp.escape(target)}: \S*busy\.rb \(route /search\): it has been computing for \d}, line)
      client.read_response("GET")
    end
    refute_includes own.stderr, "cannot be stopped"
  end
end
