# frozen_string_literal: true

# Via (RFC 9110, section 7.6.3), and proxies whose requests return to them.

require "support/site_case"
require "support/http2_client"

class ProxyLoopsTest < SiteCase
  parallel!

  H2C = "?h2c=true"
  OWN = /firebrick-\h{16}-\d+/

  def setup
    firebrick_only
  end

  def free_port
    TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
  end

  def proxied(behind, binds: nil, **options)
    served({ proxies: { "/api": { origin: behind.origin }.merge(options) } }, binds: binds)
  end

  # A server that only proxies to that port.
  def leading_to(port, own: free_port, **options)
    served({ proxies: { "/": { origin: "http://127.0.0.1:#{port}" }.merge(options) } }, binds: ["tcp://127.0.0.1:#{own}#{H2C}"])
  end

  def assert_loop(own, response)
    assert_status 508, response
    assert_logged(%r{508.*proxies "/": proxy loop: this request already passed this server}, on: own)
    requests = own.stats["proxies"]
    assert_operator own.stats["requests"]["total"], :<, 10, requests
  end

  # --- Via

  it "names itself and the version of the client to origins" do
    behind = backend
    own = proxied(behind, binds: ["tcp://127.0.0.1:0#{H2C}"])
    get("/api/x", to: own)
    get("/api/x", to: own, headers: { "Via" => "1.0 fred, 2 p.example.net (Apache/1.1)", "Connection" => "via" })
    ask("GET /api/x HTTP/1.0\r\n\r\n", to: own)
    client = Http2Client.new(own.address)
    assert_equal 200, client.get("/api/x", headers: { "via" => "1.1 edge" }).status
    client.close
    values = behind.requests.map { |req| req.all("via") }
    patterns = [/\A1\.1 #{OWN}\z/, %r{\A1\.0 fred, 2 p\.example\.net \(Apache/1\.1\), 1\.1 #{OWN}\z}, /\A1\.0 #{OWN}\z/, /\A1\.1 edge, 2 #{OWN}\z/]
    patterns.zip(values) { |pattern, value| assert_equal(1, value.size) && assert_match(pattern, value.first) }
    assert_equal 1, values.join[OWN] && values.flatten.map { |value| value[OWN] }.uniq.size
  end

  it "adds itself to responses of origins, which keep what they say" do
    behind = backend { |conn, req| conn.respond("hello", headers: req.target == "/via" ? { "Via" => "1.1 varnish" } : {}) }
    own = proxied(behind)
    assert_equal "1.1 firebrick", get("/api/x", to: own)["via"]
    assert_equal ["1.1 varnish", "1.1 firebrick"], get("/api/via", to: own).all("via")
    old = backend { |conn, _| conn.write("HTTP/1.0 200 OK\r\n\r\nold") && conn.close }
    assert_equal "1.0 firebrick", get("/api/x", to: proxied(old))["via"]
    assert_nil get("/", to: own)["via"]
  end

  it "leaves it out where it is told to" do
    behind = backend
    own = proxied(behind, via: "requests")
    assert_nil get("/api/x", to: own)["via"]
    assert_match(OWN, behind.requests.last["via"])
    off = proxied(behind, via: "off")
    assert_nil get("/api/x", to: off)["via"]
    assert_nil behind.requests.last["via"]
    get("/api/x", to: off, headers: { "Via" => "1.1 edge" })
    assert_equal ["1.1 edge"], behind.requests.last.all("via")
  end

  it "adds it without the other fields about the client, and to upgrades" do
    behind = backend
    own = proxied(behind, forwarded: false)
    get("/api/x", to: own)
    assert_match(OWN, behind.requests.last["via"])
    assert_nil behind.requests.last["x-forwarded-for"]
    get("/api/x", to: own, headers: { "Connection" => "Upgrade", "Upgrade" => "websocket" })
    assert_equal "websocket", behind.requests.last["upgrade"]
    assert_match(OWN, behind.requests.last["via"])
  end

  # --- loops

  { "a request" => {}, "an upgrade" => { "Connection" => "Upgrade", "Upgrade" => "websocket" } }.each do |what, fields|
    [true, false].each do |forwarded|
      it "ends #{what} to a proxy that is its own origin#{' and does not tell about clients' unless forwarded}" do
        port = free_port
        own = leading_to(port, own: port, forwarded: forwarded)
        assert_loop(own, get("/x", to: own, headers: fields))
      end
    end
  end

  it "ends it for HTTP/2 and for large uploads" do
    port = free_port
    own = leading_to(port, own: port)
    client = Http2Client.new(own.address)
    @connections << client
    assert_equal 508, client.get("/x").status
    assert_status 508, post("/x", "x" * 300_000, to: own)
  end

  it "ends a loop over a second server" do
    first = free_port
    second = free_port
    one = leading_to(second, own: first)
    leading_to(first, own: second)
    assert_loop(one, get("/x", to: one))
  end

  it "passes through two servers in a row, and twice through one that has two hosts" do
    behind = backend
    inner = proxied(behind)
    outer = served({ proxies: { "/out": { origin: "#{inner.url('')}/api" }, "/twice": { origin: "#{inner.url('')}/api" } } })
    assert_status 200, get("/out/x", to: outer)
    assert_equal 2, behind.requests.last["via"].scan(OWN).uniq.size
    port = free_port
    both = served({ proxies: { "/first": { origin: "http://127.0.0.1:#{port}/second" }, "/second": { origin: behind.origin } } },
                  binds: ["tcp://127.0.0.1:#{port}"])
    assert_status 200, get("/first/x", to: both)
    assert_equal 2, behind.requests.last["via"].scan(OWN).uniq.size
  end

  it "recognizes a request that an origin sends back with what it was told" do
    via = nil
    behind = backend { |conn, req| (via = req["via"]) && conn.respond("hello") }
    own = proxied(behind)
    assert_status 200, get("/api/x", to: own)
    assert_status 508, get("/api/x", to: own, headers: { "Via" => via })
    assert_status 200, get("/api/x", to: own, headers: { "Via" => via.sub(/\h-/, "g-") })
    assert_status 200, get("/", to: own, headers: { "Via" => via })
  end

  # --- handlers on mruby

  def handled(handler, port, reproxy: true)
    settings = "[routes]\n\"/\" = { mruby = \"h.rb\", reproxy = #{reproxy} }\n"
    start(files: { "h.rb" => handler.gsub("OWN", "http://127.0.0.1:#{port}") }, settings: settings, app: "run ->(env) { [200, {}, ['app ', env['HTTP_VIA'].to_s]] }",
          binds: ["tcp://127.0.0.1:#{port}"])
  end

  it "ends requests of handlers that lead to themselves" do
    mruby_only
    port = free_port
    own = handled('lambda { |env| http_request("OWN/x").join }', port)
    response = get("/", to: own)
    assert_status 508, response
    assert_includes response.body, "proxy loop"
    assert_operator own.stats["requests"]["total"], :<, 10
  end

  it "lets a handler ask its own server a few times" do
    mruby_only
    port = free_port
    own = handled('lambda { |env| env["PATH_INFO"] == "/app" ? [399, {}, []] : http_request(env["PATH_INFO"] == "/" ? "OWN/one" : "OWN/app", headers: { "x" => "1" }).join }', port)
    response = get("/", to: own, headers: { "Via" => "1.1 edge" })
    assert_status 200, response
    assert_match(/\Aapp 1\.1 edge, 1\.1 #{OWN}, 1\.1 #{OWN}\z/, response.body)
  end

  it "ends requests that handlers send on to themselves" do
    mruby_only
    port = free_port
    own = handled('lambda { |env| [307, { "x-reproxy-url" => env["HTTP_HOST"][0] == "1" ? "OWN/x".sub("127.0.0.1", "localhost") : "OWN/x" }, []] }', port)
    assert_status 508, get("/", to: own)
    assert_operator own.stats["requests"]["total"], :<, 10
  end
end
