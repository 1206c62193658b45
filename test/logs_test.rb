# frozen_string_literal: true

# Access log, error log, request ids and times passed to the app, and statistics.

require "support/case"

LOGS_APP = <<~'RUBY'
  require "json"
  run lambda { |env|
    sleep 0.1 if env["PATH_INFO"] == "/slow"
    raise "the app's fault" if env["PATH_INFO"] == "/raise"
    keys = env.select { |key, _| key =~ /\AHTTP_X_RE|\AHTTP_X_QUEUE|queue/i }.transform_values(&:to_s)
    [200, { "content-type" => "application/json" }, [JSON.generate(keys)]]
  }
RUBY

class AccessLogTest < Case
  parallel!

  def setup
    firebrick_only
  end

  def logging(format)
    start(app: LOGS_APP, settings: { log: { access: "access.log", format: format } })
  end

  # Returns the log line for a path, once it is written.
  def line(server, path)
    wait_until("a line about #{path}") do
      File.exist?(server.path("access.log")) && File.readlines(server.path("access.log"), chomp: true).find { |one| one.include?(path) && one.end_with?("") }
    end
  end

  it "writes combined lines, with queue, app and total time" do
    own = logging("combined")
    get("/slow?q=1", to: own, headers: { "User-Agent" => "Agent/1 (\"quoted\")", "Referer" => "http://from.test/" })
    found = line(own, "/slow")
    match = %r{\A127\.0\.0\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "GET /slow\?q=1 HTTP/1\.1" 200 (\d+) "http://from\.test/" "Agent/1 \((.*?)\)"(.*)\z}.match(found)
    assert match, found
    refute_match(/[^\\]"quoted/, match[2], "quotes are escaped")
    times = match[3].scan(/\d+(?:\.\d+)?/)
    assert_operator times.size, :>=, 3, "queue, app and total time in #{match[3].inspect}"
  end

  it "writes common lines" do
    own = logging("common")
    get("/common", to: own)
    assert_match %r{\A127\.0\.0\.1 - - \[.+\] "GET /common HTTP/1\.1" 200 \d+}, line(own, "/common")
  end

  it "writes JSON lines" do
    own = logging("json")
    get("/slow?q=%22", to: own, headers: { "X-Request-Id" => "given-id", "User-Agent" => "A\"\\B\xC3\xA9".b })
    entry = JSON.parse(line(own, "/slow"))
    assert_equal "GET", entry["method"]
    assert_includes entry["path"].to_s + entry["uri"].to_s, "/slow"
    assert_equal 200, entry["status"]
    assert_equal "given-id", entry["request_id"]
    %w[queue app].each { |kind| assert entry.keys.any? { |key| key.include?(kind) }, "#{kind} time in #{entry.keys}" }
    assert entry.keys.any? { |key| key.match?(/total|duration/) }, "total time in #{entry.keys}"
    app_time = entry.find { |key, _| key.include?("app") }.last
    total_time = entry.find { |key, _| key.match?(/total|duration/) }.last
    assert_operator total_time, :>=, app_time
  end

  it "writes valid JSON for any bytes, one entry per line" do
    own = logging("json")
    ask("GET /bytes\x22\\ HTTP/1.1\r\nHost: x\r\n\r\n".b, to: own)
    ask("GET /latin HTTP/1.1\r\nHost: x\r\nUser-Agent: caf\xE9 \xFF\r\nReferer: \t\x80\r\n\r\n".b, to: own)
    line(own, "/latin")
    File.readlines(own.path("access.log")).each { |one| JSON.parse(one) }
  end

  it "writes lines for refused and failed requests" do
    own = logging("json")
    assert_status 400, ask("GET /refused HTTP/1.1\r\n\r\n", to: own)
    assert_status 500, get("/raise", to: own)
    assert_equal 500, JSON.parse(line(own, "/raise"))["status"]
    wait_until("the refusal") { File.readlines(own.path("access.log")).any? { |one| JSON.parse(one)["status"] == 400 } }
  end

  it "writes to standard output with -v" do
    own = start(app: LOGS_APP, args: ["-v"])
    get("/to-stdout", to: own)
    wait_until("the line") { own.stdout.include?("/to-stdout") }
  end

  it "writes errors with class, message, place and request line to the error log" do
    own = start(app: LOGS_APP, settings: { log: { error: "errors.log" } })
    get("/raise", to: own)
    wait_until("the error") { (File.exist?(own.path("errors.log")) ? File.read(own.path("errors.log")) : "").include?("the app's fault") || own.stderr.include?("the app's fault") }
    all = own.stderr + (File.exist?(own.path("errors.log")) ? File.read(own.path("errors.log")) : "")
    assert_match(/RuntimeError/, all)
    assert_match(/config\.ru:4/, all)
    assert_includes all, "/raise"
  end
end

class RequestTimeAndIdTest < Case
  in_turn!

  shared_server threads: "1:1", app: LOGS_APP

  def setup
    firebrick_only
  end

  it "stamps X-Request-Start when it is absent, in a format that APM agents read" do
    stamp = get("/").json["HTTP_X_REQUEST_START"]
    digits = stamp[/\A(?:t=)?(\d+(?:\.\d+)?)\z/, 1]
    assert digits, stamp.inspect
    value = digits.to_f
    value /= 1000 while value > 1e11
    assert_in_delta Time.now.to_f, value, 60
  end

  it "keeps the X-Request-Start of a proxy in front" do
    assert_equal "t=1234567890.123", get("/", headers: { "X-Request-Start" => "t=1234567890.123" }).json["HTTP_X_REQUEST_START"]
  end

  it "passes the queue time on to the app" do
    holder = connect.write(request("GET", "/slow"))
    wait_for_requests(1)
    queue_times = get("/quick").json.select { |key, _| key.match?(/queue/i) }
    refute_empty queue_times
    assert_operator queue_times.values.map(&:to_f).max, :>, 0
    assert_status 200, holder.read_response
  end

  it "gives each request an id, for the app and the client" do
    first, second = Array.new(2) { get("/") }
    [first, second].each do |response|
      id = response.json["HTTP_X_REQUEST_ID"]
      assert_match(/\A[!-~]{8,}\z/, id.to_s)
      assert_equal id, response["x-request-id"]
    end
    refute_equal first["x-request-id"], second["x-request-id"]
  end

  it "keeps a client's id" do
    response = get("/", headers: { "X-Request-Id" => "abc-123" })
    assert_equal "abc-123", response.json["HTTP_X_REQUEST_ID"]
    assert_equal "abc-123", response["x-request-id"]
  end
end

class StatsTest < Case
  in_turn!

  shared_server workers: 2, threads: "1:3", app: LOGS_APP

  def setup
    firebrick_only
  end

  it "counts requests by outcome" do
    before = server.stats.dig("front", "requests") || server.stats["requests"]
    3.times { get("/") }
    get("/raise")
    after = wait_until("the counts") do
      now = server.stats.dig("front", "requests") || server.stats["requests"]
      now if now["total"] >= before["total"] + 4
    end
    assert_equal before["2xx"] + 3, after["2xx"]
    assert_equal before["5xx"] + 1, after["5xx"]
  end

  it "reports each worker's pid, memory, threads and requests" do
    workers = server.stats["workers"]
    assert_equal 2, workers.size
    workers.each do |worker|
      assert Processes.alive?(worker["pid"])
      assert worker.keys.any? { |key| key.include?("pss") || key.include?("memory") }, worker.keys.inspect
      assert worker.keys.any? { |key| key.include?("requests") }, worker.keys.inspect
      assert worker.keys.any? { |key| key.include?("busy") }, worker.keys.inspect
    end
  end

  it "has distributions of queue, app and total time" do
    get("/slow")
    front = server.stats["front"] || server.stats
    %w[queue_ms app_ms total_ms].each do |kind|
      assert_operator front.dig(kind, "count"), :>=, 1, kind
    end
  end

  it "prints readable text" do
    out, err, code = server.command_line("stats", server.dir)
    assert_equal [0, ""], [code, err]
    assert_match(/worker/i, out)
  end

  it "serves GET /stats and Puma's format on the control socket, which only its owner may open" do
    socket = Dir.glob(File.join(server.run_dir, "**", "*")).find { |path| File.socket?(path) } or flunk "no control socket in XDG_RUNTIME_DIR"
    assert_equal 0, File.stat(socket).mode & 0o077
    stats = ask_socket(socket, "/stats").json
    assert_equal 2, stats["workers"].size
    puma = ask_socket(socket, "/puma/stats").json
    assert_equal 2, puma["workers"]
    assert_equal 2, puma["booted_workers"]
    assert_equal 2, puma["worker_status"].size
    puma["worker_status"].each do |worker|
      assert Processes.alive?(worker["pid"])
      assert_equal true, worker["booted"]
      %w[backlog running pool_capacity max_threads busy_threads requests_count].each { |key| assert_kind_of Integer, worker["last_status"][key], key }
      assert_equal 3 * (Server.fibers? ? ENV["TEST_FIBERS"].to_i : 1), worker["last_status"]["max_threads"]
    end
    assert_status 404, ask_socket(socket, "/nothing")
  end

  it "reports that no server is running" do
    Dir.mktmpdir do |empty|
      File.write(File.join(empty, "config.ru"), "")
      out, err, code = server.command_line("stats", empty, "--json")
      assert_equal "", out
      refute_equal 0, code
      assert_includes err, empty
    end
  end

  private

  def ask_socket(socket, path)
    connection = Connection.new(socket)
    connection.write("GET #{path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.read_response
  ensure
    connection&.close
  end
end

class BlockedErrorLogTest < Case
  parallel!

  # A named pipe whose reader has stopped reading: a log driver that is stuck, a terminal after Ctrl-S.
  it "goes on serving and replacing workers, and writes the lines when the output accepts them" do
    firebrick_only
    Dir.mktmpdir("firebrick-log") do |folder|
      File.mkfifo(path = File.join(folder, "error.log"))
      pipe = File.open(path, File::RDWR | File::NONBLOCK)
      own = start(app: LOGS_APP, workers: 1, threads: "1:1", settings: { log: { error: path } })
      nil until pipe.write_nonblock("x" * 512, exception: false) == :wait_writable
      3.times do
        Process.kill("KILL", killed = own.stats["workers"].first["pid"])
        wait_until("another worker") { own.stats["workers"].any? { |worker| worker["pid"] != killed && worker["state"] != "starting" } }
        assert_equal 200, get("/after", to: own).status
      end
      text = +""
      wait_until("the lines") do
        text << (pipe.read_nonblock(65_536, exception: false).then { |read| read.is_a?(String) ? read : "" })
        text.scan("signal 9").length >= 3
      end
      times = text.delete("x").scan(/^\[(\S+)\] firebrick/).flatten
      assert_equal times.sort, times, text.delete("x")
    end
  end
end
