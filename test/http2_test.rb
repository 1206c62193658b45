# frozen_string_literal: true

# HTTP/2 in front of everything that serves: a Rack app, a static site, handlers on mruby and a proxy. Handlers cannot tell how a
# request arrived, apart from its version. Questions to the protocol alone are in server/protocols/http/tests/it/two.rs.

require "support/http2_case"
require "support/certificates"
require "support/site_server"
require "support/backend"
require "open3"

class Http2Test < Http2Case
  include Certificates

  parallel!

  APP = <<~'RUBY'
    require "json"

    text = { "content-type" => "text/plain" }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/env"
        plain = env.select { |_, value| value.is_a?(String) || value == true || value == false }
        [200, { "content-type" => "application/json" }, [JSON.generate(plain.merge("hijack" => env.key?("rack.hijack")))]]
      when "/echo" then [200, text, [env["rack.input"] ? env["rack.input"].read : ""]]
      when "/hints"
        env["rack.early_hints"].call("link" => "</a.css>; rel=preload; as=style")
        [200, text, ["hinted"]]
      when "/large" then [200, text, ["0123456789" * 300_000]]
      when "/partial-hijack"
        [200, text.merge("rack.hijack" => ->(io) { io.write("streamed"); io.close }), nil]
      when "/sleep" then sleep 0.3; [200, text, ["slept"]]
      when "/gate" then File.write("entered.log", ""); sleep 0.01 until File.exist?("gate.log"); [200, text, ["opened"]]
      else [200, text, ["#{env['REQUEST_METHOD']} #{env['PATH_INFO']}"]]
      end
    }
  RUBY

  shared_server app: APP, threads: "8:8", args: ["--early-hints", "-v", "--log-format", "json"]

  it "serves an app" do
    answer = fetch("/hello?x=1")
    assert_equal [200, "GET /hello", "10"], [answer.status, answer.body, answer["content-length"]]
    assert_match(/GMT\z/, answer["date"])
  end

  it "builds the env of Rack" do
    headers = { "cookie" => "a=1", "user-agent" => "test", "x-mine" => "1" }
    env = JSON.parse(fetch("/env?q=1%20", headers: headers).body)
    assert_equal ["HTTP/2", "HTTP/2", "example.test", "GET", "/env", "q=1%20", "/env?q=1%20", "http"],
                 env.values_at("SERVER_PROTOCOL", "HTTP_VERSION", "HTTP_HOST", "REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "REQUEST_URI", "rack.url_scheme")
    assert_equal ["example.test", "80", "127.0.0.1", "a=1", "test", "1"],
                 env.values_at("SERVER_NAME", "SERVER_PORT", "REMOTE_ADDR", "HTTP_COOKIE", "HTTP_USER_AGENT", "HTTP_X_MINE")
    assert_empty env.keys.grep(/:|AUTHORITY|METHOD\z|SCHEME/) - %w[REQUEST_METHOD rack.url_scheme]
  end

  it "joins cookies that come in pieces" do
    cookies = [%w[cookie a=1], %w[cookie b=2], %w[x-mine 1], %w[cookie c=3]]
    assert_equal "a=1; b=2; c=3", JSON.parse(fetch("/env", headers: cookies).body)["HTTP_COOKIE"]
  end

  it "offers no hijack, and offers it again over HTTP/1" do
    4.times do
      env = JSON.parse(fetch("/env").body)
      assert_equal [false, false], env.values_at("rack.hijack?", "hijack")
      env = JSON.parse(get("/env").body)
      assert_equal ["HTTP/1.1", true, true], env.values_at("SERVER_PROTOCOL", "rack.hijack?", "hijack")
    end
    assert_equal "streamed", fetch("/partial-hijack").body
  end

  it "continues a client that expects it" do
    client = http2
    stream = client.request("/echo", method: "POST", headers: { "expect" => "100-continue" }, body: :open)
    client.read_until("100") { client.answers[stream].interim.any? }
    assert_equal [[":status", "100"]], client.answers[stream].interim.first
    client.write(client.data(stream, "body"))
    assert_equal "body", client.answer(stream).body
    assert_equal 417, fetch("/echo", headers: { "expect" => "tea" }).status
  end

  it "sends early hints" do
    answer = fetch("/hints")
    assert_equal [[":status", "103"], ["link", "</a.css>; rel=preload; as=style"]], answer.interim.first
    assert_equal "hinted", answer.body
  end

  it "answers while others wait" do
    client = http2
    slow = client.request("/sleep")
    fast = Array.new(20) { |i| client.request("/#{i}") }
    fast.each_with_index { |stream, i| assert_equal "GET /#{i}", client.answer(stream).body }
    refute client.answers[slow].over?, "the slow one comes last"
    assert_equal "slept", client.answer(slow).body
  end

  it "writes the version to the access log, and counts requests and connections" do
    own = start(app: APP, args: ["-v", "--log-format", "json"])
    client = http2(own)
    assert_equal 200, client.get("/logged?x=1", headers: { "user-agent" => "me" }).status
    line = wait_until("the log line") { access_log(own).find { |entry| entry["path"] == "/logged" } }
    assert_equal ["HTTP/2", "GET", "x=1", "example.test", 200, "me", false], line.values_at("protocol", "method", "query", "host", "status", "user_agent", "broken")
    assert_equal 1, own.stats.dig("connections", "open")
    wait_until("a request is counted") { own.stats.dig("requests", "total").to_i >= 1 }
  end

  it "takes a request back when the client resets it" do
    own = start(app: APP, threads: "1:1", args: ["-v", "--log-format", "json"])
    client = http2(own)
    held = client.request("/gate")
    wait_until("the app has it") { File.exist?(own.path("entered.log")) }
    waiting = client.request("/waits")
    wait_for_requests(2, on: own)
    client.write(client.rst_stream(waiting))
    wait_for_requests(1, on: own)
    line = wait_until("the log line") { access_log(own).find { |entry| entry["path"] == "/waits" } }
    assert_equal 499, line["status"]
    File.write(own.path("gate.log"), "open")
    assert_equal "opened", client.answer(held).body
  end

  it "finishes requests at the end and tells the client to go" do
    own = start(app: APP)
    client = http2(own)
    assert_equal 200, client.get("/a").status
    stream = client.request("/sleep")
    wait_for_requests(1, on: own)
    own.signal("TERM")
    assert_equal "slept", client.answer(stream).body
    assert client.ends?
    assert_equal :no_error, client.goaway.code
    assert_equal 0, own.wait_exit
  end

  it "serves a static site" do
    own = site({ root: "public_html/" }, "public_html/index.html" => "home", "public_html/large.bin" => "x" * 2_000_000)
    client = http2(own)
    assert_equal ["home", "text/html; charset=utf-8"], parts(client.get("/"), :body, "content-type")
    large = client.get("/large.bin")
    assert_equal "x" * 2_000_000, large.body
    assert_equal [206, "x" * 10], parts(client.get("/large.bin", headers: { "range" => "bytes=5-14" }), :status, :body)
    assert_equal 304, client.get("/large.bin", headers: { "if-none-match" => large["etag"] }).status
    assert_equal 404, client.get("/missing").status
    assert_equal ["", "2000000"], parts(client.get("/large.bin", method: "HEAD"), :body, "content-length")
  end

  it "passes requests on to an origin by HTTP/1" do
    behind = Backend.new
    own = site({ proxies: { "/api": { origin: behind.origin } } }, "public_html/index.html" => "home")
    headers = [%w[cookie a=1], %w[cookie b=2], %w[x-mine 1], %w[te trailers]]
    answer = http2(own).get("/api/x?y=1", method: "POST", body: "sent", headers: headers)
    seen = JSON.parse(answer.body)
    assert_equal ["POST", "/x?y=1", "sent"], seen.values_at("method", "target", "body")
    fields = seen["headers"].map { |name, value| [name.downcase, value] }
    assert_equal ["a=1; b=2"], fields.select { |name, _| name == "cookie" }.map(&:last)
    assert_equal ["127.0.0.1:#{behind.port}"], fields.select { |name, _| name == "host" }.map(&:last)
    assert_equal "1", fields.assoc("x-mine")&.last
    assert_empty(fields.map(&:first).grep(/:|http2/))
  ensure
    behind&.close
  end

  it "serves handlers on mruby" do
    mruby_only
    handler = 'lambda { |env| body = env["rack.input"]; [200, {}, [env.values_at("SERVER_PROTOCOL", "HTTP_HOST", "rack.hijack?").join(" "), " ", body ? body.read : "-"]] }'
    own = start(files: { "x.rb" => handler }, settings: "[routes]\n\"/\" = \"x.rb\"\n", workers: nil, threads: nil)
    client = http2(own)
    assert_equal "HTTP/2 example.test false -", client.get("/").body
    assert_equal "HTTP/2 example.test false abc", client.get("/", method: "POST", body: "abc").body
  end

  it "is offered by ALPN on addresses that speak TLS, beside HTTP/1.1" do
    cert, key = certificate(subject_alt_name: "DNS:localhost,IP:127.0.0.1")
    own = Server.new(app: APP, files: { "own.pem" => cert.to_pem, "own.key" => key.to_pem }, binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
    @own_servers << own
    own.start
    { "--http2" => "2", "--http1.1" => "1.1" }.each do |option, version|
      body, = Open3.capture2("curl", "-sk", option, "-w", " %{http_version}", "https://127.0.0.1:#{own.port}/secure")
      assert_equal "GET /secure #{version}", body
      env, = Open3.capture2("curl", "-sk", option, "https://127.0.0.1:#{own.port}/env")
      assert_equal %w[on https], JSON.parse(env).values_at("HTTPS", "rack.url_scheme")
    end
    large, = Open3.capture2("curl", "-sk", "--http2", "https://127.0.0.1:#{own.port}/large")
    assert_equal "0123456789" * 300_000, large
  end

  it "serves curl and nghttp" do
    body, status = Open3.capture2("curl", "-s", "--http2-prior-knowledge", "-w", " %{http_version} %{http_code}", server.url("/curl"))
    assert status.success?
    assert_equal "GET /curl 2 200", body
    skip "needs nghttp" unless system("command -v nghttp > #{File::NULL}")
    assert_equal "0123456789" * 300_000, Open3.capture2("nghttp", server.url("/large")).first
  end

  it "serves h2load" do
    skip "needs h2load" unless system("command -v h2load > #{File::NULL}")
    out, = Open3.capture2e("h2load", "-n", "400", "-c", "4", "-m", "20", server.url("/load"))
    assert_match(/400 succeeded, 0 failed, 0 errored/, out)
  end

  private

  # Parts of an answer: :status, :body, or a field by its name.
  def parts(answer, *names)
    names.map { |name| name.is_a?(Symbol) ? answer.public_send(name) : answer[name] }
  end

  # A static site or proxy for this test alone.
  def site(rules, files)
    own = SiteServer.new(rules: rules, files: files, binds: [BIND])
    @own_servers << own
    own.start
  end
end
