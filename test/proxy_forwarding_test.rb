# frozen_string_literal: true

# The guarantees of the proxy for correct clients and backends, where the server around it decides: everything passes
# unchanged and no request waits for another. Questions to the proxy alone are in server/content/proxy/tests.

require "support/certificates"
require "support/site_case"
require "timeout"

class ProxyForwardingTest < SiteCase
  include Certificates

  parallel!

  def setup
    firebrick_only
  end

  # A site with one proxy below /api.
  def proxied(behind, env: {}, args: [], **options)
    served({ proxies: { "/api": { origin: behind.origin }.merge(options) } }, env: env, args: args)
  end

  # --- requests

  it "lets no path escape the prefix" do
    behind = backend
    own = served(proxies: { "/api": { origin: behind.origin("/inside") } })
    ["/api/../secret", "/api/%2e%2e/secret", "/api/x/../../secret", "/api/..%2fsecret"].each { |path| get(path, to: own) }
    behind.requests.each { |req| assert req.target.start_with?("/inside/"), req.target and refute_match(/\.\.|%2e%2e/i, req.target) }
  end

  it "passes fields on, except hop-by-hop fields" do
    behind = backend
    own = proxied(behind)
    fields = { "Accept" => "text/x-mine", "Cookie" => "a=1; b=2", "X-Mine" => "1", "Connection" => "keep-alive, X-Private", "X-Private" => "1", "Keep-Alive" => "timeout=5", "TE" => "gzip", "Proxy-Connection" => "keep-alive", "Upgrade" => "h2c",
               "Authorization" => "Basic YTpi" }
    ask(request("GET", "/api/x", fields), to: own)
    req = behind.requests.first
    assert_equal ["text/x-mine", "a=1; b=2", "1", "Basic YTpi"], (%w[accept cookie x-mine authorization].map { |name| req[name] })
    %w[x-private keep-alive te proxy-connection upgrade transfer-encoding content-length].each { |name| assert_empty req.all(name), name }
    refute_match(/x-private|upgrade/i, req["connection"].to_s)
  end

  it "lets no client take away what servers say about it by naming it in Connection" do
    behind = backend
    # Only a server with an app assigns request ids.
    own = served({ proxies: { "/api": { origin: behind.origin } } }, app: "run ->(_) { [200, {}, []] }")
    named = %w[X-Forwarded-For X-Forwarded-Proto Forwarded X-Request-Id Via X-Real-IP Authorization Cookie X-Mine]
    fields = { "Connection" => named.join(", "), "X-Forwarded-For" => "192.0.2.1", "X-Real-IP" => "192.0.2.1", "Authorization" => "Basic YTpi", "Cookie" => "a=1", "X-Mine" => "1" }
    [{}, { "X-Request-Id" => "from-before" }].each do |more|
      id = ask(request("GET", "/api/x", fields.merge(more)), to: own)["x-request-id"]
      refute_nil id
      req = behind.requests.last
      assert_equal "192.0.2.1, 127.0.0.1", req["x-forwarded-for"]
      assert_equal [["http"], [id], ["192.0.2.1"], ["Basic YTpi"], ["a=1"], []], (%w[x-forwarded-proto x-request-id x-real-ip authorization cookie x-mine].map { |name| req.all(name) })
      assert_match(/for=127/, req["forwarded"])
      assert_match(/\A1\.1 firebrick-/, req["via"])
    end
  end

  it "appends to the forwarded fields of trusted proxies" do
    behind = backend
    own = proxied(behind)
    get("/api/x", to: own, headers: { "X-Forwarded-For" => "192.0.2.1", "X-Forwarded-Proto" => "https" })
    req = behind.requests.first
    assert_equal "192.0.2.1, 127.0.0.1", req["x-forwarded-for"]
    assert_equal "https", req["x-forwarded-proto"]
    assert_equal "example.test", req["x-forwarded-host"]
    assert_match(/for="?127\.0\.0\.1/, req.all("forwarded").join(","))
  end

  it "ignores the forwarded fields of others" do
    behind = backend
    own = proxied(behind, args: ["--trusted-proxies", "none"])
    get("/api/x", to: own, headers: { "X-Forwarded-For" => "192.0.2.1", "X-Forwarded-Proto" => "https", "X-Forwarded-Host" => "evil.test", "X-Forwarded-Port" => "1", "Forwarded" => "for=192.0.2.1" })
    req = behind.requests.first
    assert_equal %w[127.0.0.1 http example.test], (%w[x-forwarded-for x-forwarded-proto x-forwarded-host].map { |name| req.all(name).join("+") })
    refute_includes req.raw_head, "192.0.2.1"
    refute_includes req.raw_head, "evil.test"
  end

  # --- bodies of requests

  it "passes a body on while it arrives" do
    pieces = Queue.new
    behind = backend { |conn, req| conn.read_body(req) { |piece| pieces << piece } && conn.respond("done") || conn.respond("done") }
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfirst")
    assert_equal "first", Timeout.timeout(10) { pieces.pop }
    connection.write("other")
    assert_equal "done", connection.read_response.body
  end

  it "passes large bodies on both ways, byte by byte" do
    body = Random.new(5).bytes(1 << 20) * 24
    behind = backend do |conn, req|
      digest = Digest::SHA256.new
      conn.read_body(req) { |piece| digest << piece }
      conn.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nX-Digest: #{digest.hexdigest}\r\n\r\n")
      conn.write(body)
    end
    response = post("/api/x", body, to: proxied(behind))
    assert_equal Digest::SHA256.hexdigest(body), response["x-digest"]
    assert_equal Digest::SHA256.hexdigest(body), Digest::SHA256.hexdigest(response.body)
  end

  it "applies a slow backend's back-pressure to the client" do
    behind = backend { |conn, _| sleep 3 and conn.respond("enough", headers: { "Connection" => "close" }) }
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    sent = 0
    piece = "x" * 100_000
    while sent < 400_000_000 && connection.socket.wait_writable(1)
      count = connection.socket.write_nonblock(piece, exception: false)
      count == :wait_writable ? break : sent += count
    end
    assert_operator sent, :<, 100_000_000
  end

  # --- responses

  it "passes a response on while it arrives" do
    go = Queue.new
    behind = backend do |conn, _|
      conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
      3.times { |i| conn.chunk("data: #{i}\n\n") && go.pop }
      conn.write("0\r\n\r\n")
    end
    connection = connect(proxied(behind))
    connection.write(request("GET", "/api/x", "Accept-Encoding" => "gzip"))
    head = connection.read_head
    assert_equal "text/event-stream", head["content-type"]
    if head["content-encoding"] # compressed events are events as long as they come one by one
      3.times { connection.read_some && go << true }
    else
      3.times { |i| connection.read_through("data: #{i}\n\n") && go << true }
    end
    connection.read_through("0\r\n\r\n")
  end

  it "keeps cookies separate, and fields for the client" do
    behind = backend do |conn, _|
      conn.write("HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2; Path=/\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nETag: \"x\"\r\nConnection: X-Private, keep-alive\r\nX-Private: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: Basic\r\n" \
                  "Content-Length: 2\r\n\r\nok")
    end
    response = get("/api/x", to: proxied(behind))
    assert_equal ["a=1", "b=2; Path=/"], response.all("set-cookie")
    assert_equal ["Tue, 15 Nov 1994 08:12:31 GMT", "\"x\""], [response["date"], response["etag"]]
    assert_empty response.all("x-private") + response.all("keep-alive")
  end

  it "passes ranges and conditions on to the origin" do
    behind = backend { |conn, req| conn.respond("part", status: "206 Partial Content", headers: { "Content-Range" => "bytes 0-3/10", "X-Asked" => [req["range"], req["if-none-match"]].join("|") }) }
    response = get("/api/x", to: proxied(behind), headers: { "Range" => "bytes=0-3", "If-None-Match" => '"x"' })
    assert_equal [206, "part", "bytes 0-3/10", "bytes=0-3|\"x\""], [response.status, response.body, response["content-range"], response["x-asked"]]
  end

  it "does not compress a response again" do
    packed = Codings.gzip("text " * 1000)
    behind = backend { |conn, _| conn.respond(packed, headers: { "Content-Encoding" => "gzip" }) }
    response = get("/api/x", to: proxied(behind), headers: { "Accept-Encoding" => "gzip, br" })
    assert_equal ["gzip", packed], [response["content-encoding"], response.body]
  end

  it "responds to pipelined requests in order" do
    behind = backend { |conn, req| sleep(rand / 50) && conn.respond(req.target) }
    connection = connect(proxied(behind))
    connection.write((1..30).map { |i| request("GET", (i % 5).zero? ? "/" : "/api/#{i}") }.join)
    (1..30).each { |i| assert_equal (i % 5).zero? ? "home" : "/#{i}", connection.read_response.body }
  end

  it "sends each of many clients its own response" do
    behind = backend { |conn, req| sleep(rand / 100) && conn.respond(req.target) }
    own = proxied(behind)
    threads = Array.new(16) { |i| Thread.new { Array.new(20) { |j| get("/api/#{i}/#{j}", to: own).body == "/#{i}/#{j}" } } }
    assert(threads.all? { |thread| thread.value.all? })
  end

  # --- connections to the origin

  it "passes a QUERY with its body, and retries one that it can repeat" do
    behind = backend do |conn, req|
      conn.read_body(req)
      next conn.respond(req.body, headers: { "Accept-Query" => "application/sql" }) if req.target != "/x"
      next conn.close if conn.number.zero?

      conn.respond("again")
    end
    own = proxied(behind)
    response = ask(request("QUERY", "/api/q", {}, "select 1"), to: own, method: "QUERY")
    assert_equal ["select 1", "application/sql"], [response.body, response["accept-query"]]
    assert_equal "again", ask(request("QUERY", "/api/x"), to: own, method: "QUERY").body
    empty = behind.requests.last
    assert_equal %w[QUERY 0], [empty.verb, empty["content-length"]]
  end

  it "limits retries when every connection is closed" do
    behind = backend { |conn, _| conn.close }
    assert_status 502, get("/api/x", to: proxied(behind))
    assert_operator behind.requests.size, :<=, 3
  end

  it "reconnects to a backend that was killed and restarted" do
    behind = backend { |conn, _| conn.respond("old") }
    own = proxied(behind)
    5.times { assert_equal "old", get("/api/x", to: own).body }
    behind.close
    3.times { assert_status 502, get("/api/x", to: own) }
    backend(port: behind.port) { |conn, _| conn.respond("new") }
    wait_until("the new backend", within: 15) { get("/api/x", to: own).body == "new" }
    5.times { assert_equal "new", get("/api/x", to: own).body }
  end

  it "closes the backend's connection when a client disappears during its body" do
    ended = Queue.new
    behind = backend { |conn, req| ended << (conn.read_body(req) rescue :early) }
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome")
    wait_until("the request") { behind.requests.any? }
    connection.reset!
    assert_equal :early, Timeout.timeout(15) { ended.pop }
  end

  it "responds with 504 soon after the timeout" do
    behind = backend { |conn, _| conn.ended? }
    own = proxied(behind, read_timeout: "300ms")
    assert_status 504, get("/api/x", to: own)
  end

  # --- several origins

  it "uses the origin with the fewest connections if configured" do
    slow = backend { |conn, _| sleep(9) && conn.respond("slow") }
    quick = backend { |conn, _| conn.respond("quick") }
    own = served(proxies: { "/api": { origin: [slow.origin, quick.origin], balance: "least_connections" } })
    2.times { connect(own).write(request("GET", "/api/x")) }
    wait_until("the slow one to be busy") { slow.requests.any? }
    6.times do
      sleep 0.1 # a request counts until the end of its response has been processed
      assert_equal "quick", get("/api/x", to: own).body
    end
  end

  it "keeps an origin that closes its connection because of a client's requests" do
    sturdy = backend { |conn, _| conn.respond("sturdy") }
    other = backend { |conn, req| req.target == "/close" ? conn.close : conn.respond("other") }
    own = served(proxies: { "/api": { origin: [sturdy.origin, other.origin] } })
    20.times { get("/api/close", to: own) }
    bodies = Array.new(8) { get("/api/x", to: own).body }
    assert_equal({ "sturdy" => 4, "other" => 4 }, bodies.tally)
  end

  it "checks the health of origins" do
    well = true
    health = ->(conn) { conn.respond("", status: well ? "200 OK" : "500 Sick") }
    sick = backend { |conn, req| req.target == "/up" ? health.call(conn) : conn.respond("sick") }
    sound = backend { |conn, _| conn.respond("sound") }
    own = served(proxies: { "/api": { origin: [sick.origin, sound.origin], health: { path: "/up", interval: "100ms", timeout: "1s", healthy: 2, unhealthy: 2 } } })
    wait_until("both in turn") { Array.new(4) { get("/api/x", to: own).body }.uniq.size == 2 }
    well = false
    wait_until("the sick one to be left out") { Array.new(4) { get("/api/x", to: own).body }.uniq == ["sound"] }
    10.times { assert_equal "sound", get("/api/x", to: own).body }
    well = true
    wait_until("both again") { Array.new(4) { get("/api/x", to: own).body }.uniq.size == 2 }
  end

  # --- other ways to an origin

  it "connects to origins on Unix sockets" do
    path = File.join(Dir.mktmpdir, "app.sock")
    behind = backend(unix: path)
    own = served(proxies: { "/api": { origin: "unix:#{path}" }, "/base": { origin: "unix:#{path}:/deep/base" } })
    assert_equal "/x?y", get("/api/x?y", to: own).json["target"]
    assert_equal "/deep/base/x", get("/base/x", to: own).json["target"]
    assert_equal 2, behind.requests.size
  ensure
    FileUtils.remove_entry(File.dirname(path))
  end

  # A TLS backend with a certificate of the authority.
  def encrypted_backend(authority, **options)
    context = OpenSSL::SSL::SSLContext.new
    context.add_certificate(*certificate(issuer: authority, **options))
    backend(tls: context)
  end

  def with_authority(authority = certificate)
    Dir.mktmpdir do |dir|
      pem = File.join(dir, "authority.pem")
      File.write(pem, authority.first.to_pem)
      yield authority, pem
    end
  end

  it "connects by TLS to origins with a trusted certificate, and refuses others" do
    with_authority do |authority, pem|
      behind = encrypted_backend(authority)
      assert_equal "/x", get("/api/x", to: proxied(behind, tls_ca: pem)).json["target"]
      assert_status 502, get("/api/x", to: proxied(behind))
      assert_equal "/x", get("/api/x", to: proxied(behind, tls_verify: false)).json["target"]
      assert_equal "/x", get("/api/x", to: proxied(behind, env: { "SSL_CERT_FILE" => pem })).json["target"]
      with_authority { |_, other| assert_status 502, get("/api/x", to: proxied(behind, tls_ca: other)) }
    end
  end

  it "connects to an origin with a self-signed certificate, as `openssl req -x509` makes them" do
    with_authority do |authority, pem|
      context = OpenSSL::SSL::SSLContext.new
      context.add_certificate(*authority)
      assert_equal "/x", get("/api/x", to: proxied(backend(tls: context), tls_ca: pem)).json["target"]
    end
  end

  it "refuses an expired certificate, even if it is configured" do
    with_authority(expired_certificate) do |authority, pem|
      context = OpenSSL::SSL::SSLContext.new
      context.add_certificate(*authority)
      own = proxied(backend(tls: context), tls_ca: pem)
      assert_status 502, get("/api/x", to: own)
      assert_logged(/certificate expired/, on: own)
    end
  end

  it "refuses a certificate for another host" do
    with_authority do |authority, pem|
      assert_status 502, get("/api/x", to: proxied(encrypted_backend(authority, subject_alt_name: "DNS:other.test"), tls_ca: pem))
    end
  end

  it "does not verify certificates with compat" do
    with_authority do |authority,|
      assert_equal "/x", get("/api/x", to: served(compat: "heroku", proxies: { "/api": { origin: encrypted_backend(authority).origin } })).json["target"]
    end
  end

  # --- other protocols

  UPGRADE = { "Connection" => "Upgrade", "Upgrade" => "websocket", "Sec-WebSocket-Version" => "13", "Sec-WebSocket-Key" => "dGhlIHNhbXBsZSBub25jZQ==" }.freeze
  SWITCHED = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"

  # An open WebSocket through a proxy to a backend that greets at once and echoes.
  def websocket(**options)
    behind = backend do |conn, _|
      conn.write("#{SWITCHED}welcome")
      while (piece = conn.read_some)
        conn.write("echo #{piece}")
      end
      conn.close
    end
    connection = connect(proxied(behind, **options))
    connection.write(request("GET", "/api/socket", UPGRADE))
    [connection, behind]
  end

  it "tunnels WebSockets, both ways, from the first byte" do
    connection, behind = websocket
    head = connection.read_head
    assert_equal [101, "websocket", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="], [head.status, head["upgrade"].downcase, head["sec-websocket-accept"]]
    assert_includes head.connection, "upgrade"
    assert_equal "welcome", connection.read_exactly(7)
    5.times do |i|
      connection.write("frame #{i}")
      assert_equal "echo frame #{i}", connection.read_exactly(12)
    end
    assert_equal %w[13 websocket], [behind.requests.first["sec-websocket-version"], behind.requests.first["upgrade"].downcase]
  end
end
