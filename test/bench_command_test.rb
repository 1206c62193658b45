# frozen_string_literal: true

# `firebrick bench` against Firebrick, nginx and Puma, with its figures compared to those of the tools whose formats it prints.

require "open3"
require "pty"
require "socket"
require "support/bench_case"
require "support/peers"

BENCH_APP = <<~'RUBY'
  require "json"
  run lambda { |env|
    body = env["rack.input"].read
    case env["PATH_INFO"]
    when "/echo"
      seen = env.select { |key, _| key.start_with?("HTTP_") || %w[REQUEST_METHOD CONTENT_TYPE QUERY_STRING].include?(key) }
      [200, { "content-type" => "application/json" }, [JSON.generate(seen.merge("body" => body))]]
    when "/cookie"
      visits = env["HTTP_COOKIE"].to_s[/visits=(\d+)/, 1].to_i
      [visits.zero? ? 200 : 201, { "content-type" => "text/plain", "set-cookie" => "visits=#{visits + 1}" }, ["visit\n"]]
    when "/sleep"
      sleep 0.05
      [200, { "content-type" => "text/plain" }, ["slept\n"]]
    when "/missing"
      [404, { "content-type" => "text/plain" }, ["no\n"]]
    when "/secret"
      right = env["HTTP_AUTHORIZATION"] == "Basic " + ["joe:pass:word"].pack("m0")
      [right ? 200 : 401, { "content-type" => "text/plain" }, ["secret\n"]]
    else
      [200, { "content-type" => "text/plain" }, ["hello\n"]]
    end
  }
RUBY

# nginx as a target: plain, TLS with its own certificate, HTTP/2 over TLS and in clear text, a Unix socket.
class BenchTarget < Peers::Nginx
  def initialize
    super
    @tls, @h2 = Array.new(2) { TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port } }
    _, status = Open3.capture2e("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "#{@base}/key.pem", "-out", certificate)
    raise "openssl made no certificate" unless status.success?
  end

  def certificate = "#{@base}/cert.pem"

  def socket = "#{@base}/web.sock"

  def tls_url(path = "/") = "https://localhost:#{@tls}#{path}"

  def h2_url(path = "/") = "http://127.0.0.1:#{@h2}#{path}"

  private

  def configuration
    <<~CONF
      user root; worker_processes 1; pid #{@base}/nginx.pid; error_log #{log};
      events { worker_connections 1024; }
      http {
        #{temporary_folders}
        access_log #{@base}/access.log; keepalive_requests 1000000; default_type text/plain;
        server {
          listen 127.0.0.1:#{@port}; listen unix:#{socket}; listen 127.0.0.1:#{@h2} http2;
          listen 127.0.0.1:#{@tls} ssl http2;
          ssl_certificate #{certificate}; ssl_certificate_key #{@base}/key.pem;
          location / { return 200 "hello\\n"; }
          location /missing { return 404 "no\\n"; }
        }
      }
    CONF
  end
end

# Quiet, because rates and durations depend on the machine; there are few requests.
class BenchAgainstFirebrickTest < BenchCase
  quiet! 25

  shared_server app: BENCH_APP, workers: 2, threads: "2:2", settings: { log: { access: "access.log", format: "json" } }

  def setup
    firebrick_only
  end

  def completed(found)
    found.dig("summary", "requests")
  end

  it "sends the given number of requests and prints a summary" do
    out, err, code = bench(server.url, "-c", 10, "-n", 500)
    assert_equal 0, code, err
    assert_match(/successful\s+500 /, out)
    assert_match(/errors\s+0$/, out)
    assert_match(/10 users/, out)
    assert_match(/response time\s+mean\s+p50/, out)
    assert_empty err, "only the summary when output is not a terminal"
  end

  it "stops after the given duration" do
    found = result(server.url, "-c", 4, "-d", "1s")
    assert_in_delta 1, found.dig("summary", "seconds"), 0.5
    assert_operator completed(found), :>, 10
  end

  it "sends a given number of requests per user, with pauses" do
    found = result(server.url, "-c", 5, "-r", 4, "--think", "0..20ms")
    assert_equal 20, completed(found)
    assert_equal 5, found.dig("outcome", "connections")
  end

  it "sends at a constant rate" do
    found = result(server.url, "--rate", "200/s", "-d", "2s")
    assert_in_delta 400, completed(found), 20
    assert_nil found.dig("outcome", "corrected")
  end

  it "ramps the rate up" do
    found = result(server.url, "--rate", "20..200/s:2s", "--arrivals", "random")
    assert_in_delta 220, completed(found), 60
    first, second = found.dig("outcome", "course").map { |one| one["sent"] }
    assert_operator first, :<, second
  end

  it "measures from when a request was due, in the open model" do
    found = result(server.url("/sleep"), "--rate", "200/s", "-d", "2s", "-c", 400)
    assert_operator found.dig("summary", "latency_ms", "p99"), :>, 500, "four threads of 50 ms each do 80 per second"
  end

  it "splits percentiles into the server's stages" do
    out, err, code = bench(server.url("/sleep"), "-c", 20, "-n", 200)
    assert_equal 0, code, err
    assert_match(/p50\s+[\d.]+ m?s = [\d.]+ queue \+ .*[\d.]+ app/, out)
    out, = bench(server.url("/sleep"), "-c", 4, "-n", 20, "--no-stages")
    refute_match(/queue \+/, out)
  end

  it "reports the server's memory and CPU time" do
    found = result(server.url, "-c", 10, "-n", 3000, "--control", control)
    before, after = found["server"].values_at("before", "after")
    assert_operator after.dig("requests", "total") || after["requests"].to_s[/\d+/].to_i, :>, 0
    assert_operator after["cpu_ms"], :>=, before["cpu_ms"]
    out, = bench(server.url, "-n", 2000, "--control", control)
    assert_match(/memory\s+[\d.]+ MiB before/, out)
    _, err, code = bench(server.url, "-n", 1, "--control", "/nowhere.sock")
    assert_equal 1, code
    assert_match(/nothing listens on/, err)
  end

  it "sends methods, fields, bodies and cookies" do
    found = JSON.parse(captured("-X", "put", "-H", "X-A: b: c", "--body", "a=1", "-b", "c=d"))
    assert_equal ["PUT", "b: c", "a=1", "c=d"], found.values_at("REQUEST_METHOD", "HTTP_X_A", "body", "HTTP_COOKIE")
    assert_equal "application/x-www-form-urlencoded", found["CONTENT_TYPE"]
    in_folder do |dir|
      File.write("#{dir}/b.json", '{"a":1}')
      found = JSON.parse(captured("--body-file", "#{dir}/b.json"))
      assert_equal ["POST", '{"a":1}', "application/json"], found.values_at("REQUEST_METHOD", "body", "CONTENT_TYPE")
    end
    assert_equal 0, bench(server.url("/secret"), "-n", 3, "--user", "joe:pass:word", "--fail-if", "errors>0").last
  end

  it "returns each user's cookies" do
    found = result(server.url("/cookie"), "-c", 3, "-r", 4, "--cookies")
    assert_equal({ "200" => 3, "201" => 9 }, found.dig("outcome", "statuses"))
    assert_equal({ "200" => 12 }, result(server.url("/cookie"), "-c", 3, "-r", 4).dig("outcome", "statuses"))
  end

  it "works over a Unix socket, without keep-alive, and pipelined" do
    in_folder do |dir|
      own = start(app: BENCH_APP, binds: ["unix://#{dir}/a.sock"])
      assert_equal 50, completed(result("unix:#{dir}/a.sock:/x", "-c", 2, "-n", 50))
      assert_equal 50, completed(result("http://example.test/x", "--connect-to", "unix:#{dir}/a.sock", "-c", 2, "-n", 50))
      assert_kind_of String, own.address
    end
    assert_equal 100, result(server.url, "-c", 4, "-n", 100, "--no-keep-alive").dig("outcome", "connections")
    assert_equal 200, completed(result(server.url, "-c", 2, "-n", 200, "--pipeline", 8))
  end

  it "checks responses" do
    { ["--expect-status", "2xx"] => "/missing", ["--expect-length", "7"] => "/", ["--expect-body", "^hello$"] => "/sleep",
      ["--expect-sha256", "0" * 64] => "/" }.each do |flags, path|
      _, err, code = bench(server.url(path), "-n", 4, "-c", 1, *flags)
      assert_equal 1, code, flags.inspect
      assert_match(/no successful response/, err)
    end
    right = ["--expect-status", "200", "--expect-length", "6", "--expect-body", "^hello\\n$",
             "--expect-sha256", Digest::SHA256.hexdigest("hello\n"), "--fail-if", "errors>0"]
    assert_equal 0, bench(server.url, "-n", 4, *right).last
  end

  it "sets the exit status by --fail-if conditions" do
    out, err, code = bench(server.url, "-n", 50, "--fail-if", "p99>1us", "--fail-if", "errors>0", "--fail-if", "rate<1/s")
    assert_equal 1, code
    assert_match(/successful/, out, "the summary is printed all the same")
    assert_equal 1, err.lines.size, err
    assert_match(/failed: p99>1us: it is/, err)
    assert_equal 1, bench(server.url, "--rate", "50/s", "-d", "1s", "--fail-if", "corrected.p99>10s").last, "a metric that is missing"
    assert_equal 0, bench(server.url, "-n", 50, "--fail-if", "p99>1m", "-q").last
  end

  it "takes URLs from a file" do
    in_folder do |dir|
      File.write("#{dir}/urls.txt", "# shop\nHOST=#{server.address.join(':')}\nhttp://$(HOST)/a weight=3\n${HOST}/echo POST <b.txt\n")
      File.write("#{dir}/b.txt", "body")
      found = result("-f", "#{dir}/urls.txt", "-n", 80, "-c", 2)
      counts = found.dig("outcome", "requests").to_h { |one| [one["name"], one["ok"]] }
      assert_equal [60, 20], counts.values
      assert_match(%r{POST http://.*/echo}, counts.keys.last)
      File.write("#{dir}/urls.txt", "http://h/a\nhttp://h/b get\n")
      _, err, code = bench("-f", "#{dir}/urls.txt")
      assert_equal 2, code
      assert_match(/urls\.txt:2: .*GET/, err)
    end
  end

  it "replays an access log with its gaps" do
    in_folder do |dir|
      line = ->(second, request) { "h - - [31/Jan/2026:12:00:#{second} +0000] \"#{request} HTTP/1.1\" 200 1 \"-\" \"x\"\n" }
      File.write("#{dir}/access.log", line["00", "GET /a?b=c"] + line["00", "GET /a?b=c"] + "junk\n" + line["01", "POST /echo"] + line["04", "GET /x"])
      found = result(server.url("").delete_suffix("/"), "--replay", "#{dir}/access.log", "--speed", "2x")
      assert_equal 3, completed(found)
      assert_in_delta 2, found.dig("summary", "seconds"), 0.5
      assert_equal 4, completed(result(server.url, "--replay", "#{dir}/access.log", "--speed", "10x", "--replay-unsafe"))
      out, = bench(server.url, "--replay", "#{dir}/access.log", "--speed", "10x")
      out = out.split.join(" ")
      assert_match(/1 requests? of the log/, out)
      assert_match(/could not be parsed, such as .*access\.log:3: junk/, out)
    end
    get("/logged?x=1")
    log = File.read(server.path("access.log"))
    assert_operator completed(result(server.url, "--replay", "-", "--speed", "1000x", input: log)), :>, 0, "Firebrick's own log"
  end

  it "merges the results of several machines" do
    in_folder do |dir|
      files = %w[a b].map { |name| "#{dir}/#{name}.json" }
      files.each { |file| assert_equal 0, bench(server.url, "-n", 100, "-c", 5, "--json", file, "-q").last }
      out, err, code = bench("--merge", *files, "--format", "json")
      assert_equal 0, code, err
      joined = JSON.parse(out)
      assert_equal [200, 2], [completed(joined), joined["runs"]]
      assert_match(/Complete requests:      200$/, bench("--merge", *files, "--format", "ab").first)
      File.write("#{dir}/c.json", '{"kind":"firebrick tune","version":1}')
      _, err, code = bench("--merge", files.first, "#{dir}/c.json", "#{dir}/d.json")
      assert_equal 2, code
      assert_match(/c\.json is not a result .*firebrick tune/, err)
      assert_match(/d\.json: No such file/, err)
    end
  end

  it "writes its results to files" do
    in_folder do |dir|
      out, err, code = bench(server.url, "-n", 300, "--json", "a.json", "--csv", "a.csv", "--html", "a.html", "--name", "my <run>", "-q", dir: dir)
      assert_equal ["", "", 0], [out, err, code]
      assert_equal "my <run>", JSON.parse(File.read("#{dir}/a.json"))["name"]
      assert_match(/\Asecond,sent,ok,errors,p50_ms/, File.read("#{dir}/a.csv"))
      page = File.read("#{dir}/a.html")
      assert_includes page, "my &lt;run&gt;"
      assert_includes page, "Over time"
      refute_match(%r{(src|href)=["']?(https?:)?//}, page, "a page of its own")
    end
  end

  it "finishes with partial results at the first Ctrl-C, and exits at the second" do
    reader, _, pid = PTY.spawn(Server.ruby_files.merge("TERM" => "xterm"), Server.binary, "bench", server.url, "-d", "60s", "-c", "2")
    screen = +""
    wait_until("the live screen", within: 20) { screen << reader.read_nonblock(65_536, exception: false).then { |read| read.is_a?(String) ? read : "" } and screen.include?("in flight") }
    sleep 0.5
    Process.kill("INT", pid)
    begin
      loop { screen << reader.readpartial(65_536) }
    rescue Errno::EIO, EOFError
      nil
    end
    _, status = Process.wait2(pid)
    assert_equal 0, status.exitstatus
    assert_match(/successful/, screen)
    assert_match(/\e\[J/, screen, "the live screen is gone before the summary")
    assert_operator screen.rindex("\e["), :<, screen.index("successful")
  end

  private

  def control
    Dir[File.join(server.run_dir, "firebrick", "*")].find { |path| File.socket?(path) } or flunk "no control socket in #{server.run_dir}"
  end

  # The response head and body as a capturing server received them.
  def captured(*flags)
    listener = TCPServer.new("127.0.0.1", 0)
    run = Thread.new { bench("http://127.0.0.1:#{listener.local_address.ip_port}/", "-n", 1, "-c", 1, *flags) }
    client = listener.accept
    head = +""
    head << client.readpartial(1) until head.end_with?("\r\n\r\n")
    body = client.read(head[/^content-length: (\d+)/i, 1].to_i)
    client.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    client.close
    assert_equal 0, run.value.last
    fields = head.lines.drop(1).filter_map { |line| line.chomp.split(": ", 2) }.select { |pair| pair.size == 2 }
    names = fields.to_h.transform_keys { |name| name == "Content-Type" ? "CONTENT_TYPE" : "HTTP_#{name.upcase.tr('-', '_')}" }
    JSON.generate(names.merge("REQUEST_METHOD" => head[/\A\S+/], "body" => body))
  ensure
    listener&.close
  end
end

class BenchAgainstNginxTest < BenchCase
  parallel!

  def setup
    firebrick_only
    skip "nginx is not installed" unless File.executable?("/usr/sbin/nginx")
    @nginx = BenchTarget.new.start
  end

  def teardown
    @nginx&.finish
  end

  it "verifies TLS certificates" do
    _, err, code = bench(@nginx.tls_url, "-n", 10, "-c", 1)
    assert_equal 1, code
    assert_match(/certificate/i, err)
    found = result(@nginx.tls_url, "-n", 20, "-c", 2, "-k")
    assert_equal 20, found.dig("summary", "requests")
    assert_match(/TLSv1\.[23]/, found.dig("outcome", "server", "tls"))
    assert_equal 20, result(@nginx.tls_url, "-n", 20, "-c", 2, "--ca", @nginx.certificate).dig("summary", "requests")
  end

  it "measures TLS handshakes" do
    found = result(@nginx.tls_url, "-n", 40, "-c", 2, "-k", "--no-keep-alive").dig("summary", "handshakes")
    assert_equal [40, 40, 0, 0], found.values_at("count", "full", "resumed", "failed")
    assert_operator found.dig("time_ms", "p50"), :>, 0
    assert_operator found["per_s"], :>, 0
    found = result(@nginx.tls_url, "-n", 40, "-c", 2, "-k", "--no-keep-alive", "--resume").dig("summary", "handshakes")
    assert_operator found["resumed"], :>=, 30
    text, = bench(@nginx.tls_url, "-n", 40, "-c", 2, "-k", "--no-keep-alive")
    assert_match(%r{^  TLS handshakes +40 +\S+/s, all full; p50 \S+ \S+, p95 \S+ \S+, max \S+ \S+$}, text)
    assert_match(/^TLSv1\.[23] \S+/, text)
    refute_includes result(@nginx.url, "-n", 10, "-c", 1)["summary"], "handshakes"
  end

  it "multiplexes HTTP/2 requests on few connections" do
    [[@nginx.h2_url], [@nginx.tls_url, "-k"]].each do |target|
      found = result(*target, "--http", "2", "--streams", 50, "-c", 2, "-n", 2000)
      assert_equal [2000, 2, "HTTP/2"], [found.dig("summary", "requests"), found.dig("outcome", "connections"), found.dig("outcome", "server", "protocol")]
    end
  end

  it "prints what ab prints" do
    skip "ab is not installed" unless system("which ab >/dev/null")
    [%w[], %w[-k], %w[-p]].each do |kind|
      theirs, = Open3.capture2("ab", "-q", *(kind == %w[-p] ? ["-p", "/etc/hostname"] : kind), "-n", "200", "-c", "5", @nginx.url)
      ours = ["-n", 200, "-c", 5, "--format", "ab"]
      ours << "--no-keep-alive" unless kind == %w[-k]
      ours += ["--body-file", "/etc/hostname"] if kind == %w[-p]
      compare(theirs, bench(@nginx.url, *ours).first)
    end
    theirs, = Open3.capture2("ab", "-q", "-n", "50", "-c", "5", @nginx.url("/missing"))
    compare(theirs, bench(@nginx.url("/missing"), "-n", 50, "-c", 5, "--no-keep-alive", "--format", "ab").first)
    in_folder do |dir|
      system("ab", "-q", "-n", "200", "-e", "#{dir}/ab.csv", @nginx.url, out: File::NULL)
      theirs = File.readlines("#{dir}/ab.csv")
      ours = bench(@nginx.url, "-n", 200, "--format", "ab-csv").first.lines
      assert_equal [theirs.size - ours.size, theirs.first], [0, ours.first]
      assert_equal theirs.drop(1).map(&:to_i), ours.drop(1).map(&:to_i)
    end
  end

  it "prints what siege prints" do
    skip "siege is not installed" unless system("which siege >/dev/null")
    in_folder do |dir|
      { "false" => "siege", "true" => "siege-json" }.each do |json, format|
        File.write("#{dir}/rc", "json_output = #{json}\nverbose = false\nlogging = false\nparser = false\nlimit = 255\n")
        theirs, = Open3.capture2e("siege", "-R", "#{dir}/rc", "-b", "-c", "5", "-r", "20", @nginx.url)
        theirs = theirs[/^(Transactions:|\{).*/m]
        ours = bench(@nginx.url, "-c", 5, "-r", 20, "--format", format).first
        compare(theirs, ours)
        assert_match(/transactions"?:\s+100\b/i, ours)
      end
    end
  end

  it "prints what wrk prints" do
    skip "wrk is not installed" unless system("which wrk >/dev/null")
    ["/", "/missing"].each do |path|
      theirs, = Open3.capture2("wrk", "-t1", "-c5", "-d1s", "--latency", @nginx.url(path))
      compare(theirs, bench(@nginx.url(path), "-t", 1, "-c", 5, "-d", "1s", "--format", "wrk").first)
    end
  end

  it "stops in time when a server never responds" do
    TCPServer.open("127.0.0.1", 0) do |deaf|
      url = "http://127.0.0.1:#{deaf.local_address.ip_port}/"
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      out, err, code = bench(url, "-c", 3, "-d", "1s", "--grace", "500ms", within: 20)
      assert_equal 1, code, out
      assert_match(/no successful response/, err)
      assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - started, :<, 10
      out, = bench(url, "-c", 3, "-n", 6, "--timeout", "200ms", within: 20)
      assert_match(/timeout\s+6 /, out)
    end
  end

  it "reports a refused connection" do
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    _, err, code = bench("http://127.0.0.1:#{port}/", "-n", 5)
    assert_equal 1, code
    assert_match(/refused/i, err)
  end

  private

  # Compares the lines: the same order, with numbers of the same format in the same positions.
  def compare(theirs, ours)
    assert_equal shape(theirs), shape(ours), "#{theirs}\n---- and ours ----\n#{ours}"
  end

  def shape(text)
    # The greeting differs by program, units depend on the figures, ab warns about its own statistics, and siege starts a line after its brace.
    text.sub(/^\{\n\t/, "{\t").sub(/\AThis is.*?\n\n\n/m, "").gsub(/^(WARNING|ERROR): The median.*\n.*\n/, "").lines.map do |line|
      line = line.chomp.sub(/Server Software:.*/, "Server Software:").sub(/(Running ).*( test @ )/, '\1T\2')
      line.gsub(/ +-?\d+(\.\d+)?(us|ms|s|k|K|M|G)?(B?)(?= |,|$|%)/) { |found| " #{found.include?('.') ? 'N.N' : 'N'}" }.gsub(/\d+(\.\d+)?/, "N").gsub(/\bN\.N\b/, "N").gsub(/\t\s+N/, "\t N").squeeze(" ")
    end
  end
end

class BenchUsageTest < BenchCase
  parallel!

  def setup
    firebrick_only
  end

  it "reports wrong usage before it connects" do
    { [] => /no URL: expected/, ["h", "-c", "many"] => /--connections: "many"/, ["h", "--rate", "5/s", "--think", "1s"] => /--think cannot be used with --rate/,
      ["h", "-d", "soon"] => /1m30s/, ["ftp://h/"] => /ftp/, ["h", "--nonsense"] => /--nonsense/, ["h", "--json", "/nowhere/x"] => %r{no folder /nowhere} }.each do |args, wanted|
      out, err, code = bench(*args)
      assert_equal [2, ""], [code, out], args.inspect
      assert_match wanted, err
    end
  end

  it "prints help" do
    out, _, code = bench("--help")
    assert_equal 0, code
    ["Load and duration", "Checks", "Examples:", "--replay", "Exit status"].each { |part| assert_includes out, part }
  end
end

class BenchAgainstPumaTest < BenchCase
  parallel!

  it "loads Puma, without figures from inside the server" do
    skip "puma is not installed" unless system("which puma >/dev/null")
    in_folder do |dir|
      File.write("#{dir}/config.ru", BENCH_APP)
      port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
      pid = Process.spawn("puma", "-b", "tcp://127.0.0.1:#{port}", "-t", "2:2", "-e", "production", "#{dir}/config.ru", chdir: dir, %i[out err] => File::NULL)
      wait_until("puma", within: 20) { TCPSocket.new("127.0.0.1", port).close || true rescue nil }
      found = result("http://127.0.0.1:#{port}/sleep", "-c", 8, "-n", 80)
      assert_equal [80, nil], [found.dig("summary", "requests"), found.dig("outcome", "stages")]
      assert_operator found.dig("summary", "latency_ms", "max"), :>, 100, "two threads of 50 ms for eight users"
    ensure
      Process.kill("TERM", pid)
      Process.wait(pid)
    end
  end
end
