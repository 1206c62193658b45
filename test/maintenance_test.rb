# frozen_string_literal: true

# `firebrick maintenance`: requests get a page (503) instead of the site, the handlers or the app.

require "support/case"
require "support/certificates"
require "support/http2_client"
require "support/interrupting"
require "support/tls_connection"
require "support/upgrading"

class MaintenanceTest < Case
  parallel! slow: true

  include Certificates
  include Upgrading
  include Interrupting

  APP = Interrupting::APP

  def setup
    firebrick_only
  end

  def maintenance_of(own) = own.control("/maintenance")

  it "answers with a page until it is switched off" do
    own = start(app: APP, files: { "public/a.txt" => "a file" }, settings: { files: { public: "public" } })
    assert_equal "maintenance is off\n", assert_maintenance(own)
    out = assert_maintenance(own, "on", "--retry-after", "10m", "--message", "Back at <noon>")
    assert_match(/^maintenance is on for .+, by the control socket: 0 requests got the page$/, out)
    %w[/ /a.txt /missing].each do |path|
      response = get(path, to: own)
      assert_status 503, response, path
      assert_equal ["600", "no-store", "text/html; charset=utf-8"], [response["retry-after"], response["cache-control"], response["content-type"]]
      assert_includes response.body, "Back at &lt;noon&gt;"
    end
    head = ask(request("HEAD", "/"), to: own)
    assert_equal [503, ""], [head.status, head.body]
    assert_operator Integer(head["content-length"]), :>, 100
    assert_status 503, post("/", "x" * 100_000, to: own)
    assert_empty served(own)
    assert_match(/: 5 requests got the page$/, assert_maintenance(own))
    assert_equal "maintenance is off\n", assert_maintenance(own, "off")
    assert_status 200, get("/", to: own)
    assert_equal "a file", get("/a.txt", to: own).body
    assert_logged("maintenance is on, by the control socket", on: own)
    assert_logged("maintenance is off, by the control socket", on: own)
  end

  it "answers with JSON to clients that read it" do
    own = start(app: APP)
    assert_maintenance(own, "on", "--message", "Moving \"house\"")
    response = get("/api", to: own, headers: { "Accept" => "application/json" })
    assert_equal [503, "application/json"], [response.status, response["content-type"]]
    assert_equal({ "status" => 503, "error" => "Service Unavailable", "message" => "Moving \"house\"" }, JSON.parse(response.body))
    assert_match(/Accept/i, response["vary"])
    assert_match(%r{text/html}, get("/", to: own, headers: { "Accept" => "text/html,application/json;q=0.9" })["content-type"])
    assert_match(%r{text/html}, get("/", to: own, headers: { "Accept" => "*/*" })["content-type"])
  end

  it "takes its defaults from the settings, which a reload reads again" do
    settings = { maintenance: { page: "down.html", retry_after: "90s", allow: ["192.0.2.0/24"], allow_paths: ["/up"] } }
    own = start(app: APP, files: { "down.html" => "<h1>ours</h1>" }, settings: settings)
    assert_maintenance(own, "on")
    response = get("/", to: own)
    assert_equal ["<h1>ours</h1>", "90"], [response.body, response["retry-after"]]
    assert_status 200, get("/up", to: own)
    state = maintenance_of(own)
    assert_equal [false, ["192.0.2.0/24"], ["/up"]], state.values_at("own_page", "allow", "allow_paths")
    File.write(own.path("firebrick.toml"), File.read(own.path("firebrick.toml")).sub("90s", "91s"))
    assert_reloads(own)
    assert_equal "90", get("/", to: own)["retry-after"], "what is in force does not change"
    assert_maintenance(own, "on", "--allow-path", "/other")
    assert_equal "91", get("/", to: own)["retry-after"]
    assert_status 503, get("/up", to: own)
    assert_status 200, get("/other/x", to: own)
    assert_logged("maintenance is changed, by the control socket", on: own)
  end

  it "serves allowed addresses, as trusted proxies report them" do
    own = start(app: APP, settings: { rack: { trusted_proxies: ["127.0.0.0/8"] } })
    assert_maintenance(own, "on", "--allow", "192.0.2.7,2001:db8::/32")
    { nil => 503, "192.0.2.7" => 200, "192.0.2.8" => 503, "2001:db8::9" => 200, "192.0.2.7, 198.51.100.1" => 503 }.each do |client, status|
      assert_status status, get("/", to: own, headers: client ? { "X-Forwarded-For" => client } : {}), client
    end
    assert_maintenance(own, "on", "--allow", "127.0.0.1")
    assert_status 200, get("/", to: own)
  end

  it "does not believe a client that is no trusted proxy" do
    own = start(app: APP, settings: { rack: { trusted_proxies: ["none"] } })
    assert_maintenance(own, "on", "--allow", "192.0.2.7")
    assert_status 503, get("/", to: own, headers: { "X-Forwarded-For" => "192.0.2.7" })
  end

  it "keeps live and ready, unless maintenance.ready is false" do
    probes = ["--live-path", "/livez", "--ready-path", "/readyz"]
    own = start(app: APP, args: probes)
    assert_maintenance(own, "on")
    %w[/livez /readyz].each { |path| assert_status 200, get(path, to: own), path }
    other = start(app: APP, args: probes, settings: { maintenance: { ready: false } })
    assert_maintenance(other, "on")
    assert_equal([200, 503], %w[/livez /readyz].map { |path| get(path, to: other).status })
    assert_equal "the server is in maintenance\n", other.control_response("/ready").last
    assert_match(/^ready +no/, assert_maintenance(other))
    assert_maintenance(other, "off")
    assert_status 200, get("/readyz", to: other)
  end

  it "stands before static sites, over HTTP/2 on the same connection" do
    own = start(files: { "index.html" => "x" }, workers: nil, threads: nil, environment: nil, binds: ["tcp://127.0.0.1:0?h2c=true"])
    assert_maintenance(own, "on")
    client = Http2Client.new(own.address).tap { |one| @connections << one }
    answer = client.get("/")
    assert_equal [503, "no-store"], [answer.status, answer["cache-control"]]
    assert_maintenance(own, "off")
    assert_equal 200, client.get("/").status
  end

  it "stands before handlers on mruby" do
    mruby_only
    own = start(app: APP, files: { "hello.rb" => "lambda { |env| [200, {}, ['from mruby']] }" }, settings: { routes: { '"/hello"': "hello.rb" } })
    assert_equal "from mruby", get("/hello", to: own).body
    assert_maintenance(own, "on")
    assert_status 503, get("/hello", to: own)
    assert_maintenance(own, "on", "--allow-path", "/hello")
    assert_equal "from mruby", get("/hello", to: own).body
  end

  it "answers over TLS and HTTP/3" do
    cert, key = certificate
    own = start(app: APP, files: { "own.pem" => cert.to_pem, "own.key" => key.to_pem }, binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
    assert_maintenance(own, "on", "--retry-after", "42s")
    connection = TlsConnection.new(own.address).tap { |one| @connections << one }
    connection.write(request("GET", "/"))
    response = connection.read_response
    assert_equal [503, "42"], [response.status, response["retry-after"]]
    %w[2 3].each do |version|
      out, err, code = own.command_line("bench", "https://127.0.0.1:#{own.port}/", "-k", "--http", version, "-c", "1", "-n", "5", "--expect-status", "503", "--expect-body", "Down for maintenance")
      assert_equal 0, code, "HTTP/#{version}: #{out}#{err}"
    end
    assert_equal 11, maintenance_of(own)["responses"]
  end

  it "is in the figures" do
    own = start(app: APP)
    assert_match(/^firebrick_maintenance 0$/, own.metrics)
    assert_maintenance(own, "on")
    3.times { get("/", to: own) }
    assert_match(/^firebrick_maintenance 1$/, own.metrics)
    assert_match(/^firebrick_maintenance_responses(_total)? 3$/, own.metrics)
    assert_equal [true, 3], own.stats["maintenance_state"].values_at("on", "responses")
    assert_match(/^service +maintenance is on/, own.command_line("stats", own.dir).first)
    assert_match(/^service +maintenance is on/, own.command_line("status", own.dir).first)
    json = JSON.parse(assert_maintenance(own, "--json"))
    assert_equal [true, "the control socket"], json.values_at("on", "by")
  end

  it "leaves requests in progress and tunnels alone" do
    own = start(app: APP)
    gate = send_to(own, "/gate")
    tunnel = send_to(own, "/socket", headers: { "Connection" => "Upgrade", "Upgrade" => "echo" })
    assert_match(/101/, tunnel.socket.readpartial(1000))
    wait_until("the request to be served") { entered?(own) }
    assert_maintenance(own, "on")
    let_go(own)
    assert_equal "one opened", gate.read_response("GET").body
    gate.write(request("GET", "/"))
    assert_status 503, gate.read_response("GET"), "the same connection"
    tunnel.write("hello\n")
    assert_equal "echo hello\n", tunnel.socket.readpartial(1000)
  end

  it "survives reloads, an upgrade with its page, and new workers" do
    own = launch(app: APP)
    page = "<p>#{'ä' * 100_000}</p>"
    File.write(own.path("page.html"), page)
    assert_maintenance(own, "on", "--page", "page.html", "--retry-after", "77", "--allow", "192.0.2.7")
    FileUtils.rm(own.path("page.html"))
    assert_reloads(own)
    workers_of(own).each { |pid| Process.kill("KILL", pid) }
    assert_equal page.b, get("/", to: own).body.b
    assert_upgrades(own)
    response = get("/", to: own)
    assert_equal [503, "77", page.b], [response.status, response["retry-after"], response.body.b]
    assert_equal ["192.0.2.7"], maintenance_of(own)["allow"]
    assert_logged("maintenance is on, as before the upgrade", on: own)
    assert_maintenance(own, "off")
    assert_status 200, get("/", to: own)
  end

  it "follows the file of the settings" do
    own = start(app: APP, settings: { maintenance: { file: "public/system/maintenance.html", retry_after: "30s" } })
    assert_status 200, get("/", to: own)
    FileUtils.mkdir_p(own.path("public/system"))
    File.write(own.path("public/system/maintenance.html"), "<h1>Capistrano</h1>")
    wait_until("the page") { get("/", to: own).status == 503 }
    response = get("/", to: own)
    assert_equal ["<h1>Capistrano</h1>", "30"], [response.body, response["retry-after"]]
    _, err, code = own.command_line("maintenance", "off", own.dir)
    assert_equal 1, code
    assert_match(%r{public/system/maintenance.html keeps maintenance on \(maintenance.file\): remove the file}, err)
    FileUtils.rm_rf(own.path("public/system"))
    wait_until("the app") { get("/", to: own).status == 200 }
    FileUtils.rm_rf(own.path("public"))
  end

  it "begins with the file, whose text is the message" do
    own = start(app: APP, files: { "tmp/maintenance.txt" => "Moving & more\n" }, settings: { maintenance: { file: "tmp/maintenance.txt" } })
    response = get("/", to: own)
    assert_status 503, response
    assert_includes response.body, "<p>Moving &amp; more</p>"
    assert_maintenance(own, "on", "--message", "by hand")
    FileUtils.rm(own.path("tmp/maintenance.txt"))
    sleep 1
    assert_includes get("/", to: own).body, "by hand", "a command has taken over"
    assert_maintenance(own, "off")
    assert_status 200, get("/", to: own)
  end

  it "says what is wrong with an order" do
    own = start(app: APP, files: { "large.html" => "x" * (600 << 10), "empty.html" => "", "latin.html" => "\xe4".b })
    [[%w[on --page missing.html], /--page .*missing.html: No such file/],
     [%w[on --page large.html], /--page .*large.html: a page may have 512 KiB/],
     [%w[on --page empty.html], /--page .*empty.html: the page is empty/],
     [%w[on --page latin.html], /--page .*latin.html: the page is not UTF-8/],
     [%w[on --page large.html --message x], /a page may have|--message is for the server's own page/],
     [%w[on --retry-after 0], /--retry-after 0: expected a time such as 90s or 10m, from 1s to 1d/],
     [%w[on --allow localhost], /--allow localhost: expected an address or a network/],
     [%w[on --allow-path up], /--allow-path up: expected a path/],
     [%w[off --page large.html], /--page is for `firebrick maintenance on`/],
     [%w[open], /invalid value 'open'/]].each do |words, expected|
      out, err, code = own.command_line("maintenance", *words)
      assert_equal [2, ""], [code, out], words
      assert_match expected, err
    end
    _, err, code = own.command_line("maintenance", "off")
    assert_equal [1, "firebrick: maintenance is off\n"], [code, err]
    assert_status 200, get("/", to: own)
  end

  it "says which page of the settings cannot be read" do
    own = start(app: APP, settings: { maintenance: { page: "missing.html" } })
    _, err, code = own.command_line("maintenance", "on")
    assert_equal 1, code
    assert_match(/\Afirebrick: maintenance.page: .*missing.html: No such file/, err)
    assert_equal "maintenance is off\n", assert_maintenance(own)
    assert_maintenance(own, "on", "--message", "without it")
    assert_includes get("/", to: own).body, "without it"
  end
end
