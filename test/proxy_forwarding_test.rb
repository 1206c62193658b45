# frozen_string_literal: true

# The guarantees of the proxy for correct clients and backends: everything passes unchanged, nothing is sent
# twice, and no request waits for another.

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

  it "passes path and query on unchanged" do
    behind = backend
    own = proxied(behind)
    { "/api/a%20b?x=%2F&y=a+b" => "/a%20b?x=%2F&y=a+b", "/api/caf%C3%A9" => "/caf%C3%A9", "/api/a;b=c,d" => "/a;b=c,d", "/api/?a?b" => "/?a?b", "/api" => "/" }.each do |path, target|
      assert_equal target, get(path, to: own).json["target"], path
    end
  end

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

  it "sends the origin's host, or the client's if configured" do
    behind = backend
    get("/api/x", to: proxied(behind))
    get("/api/x", to: proxied(behind, host: "client"))
    assert_equal ["127.0.0.1:#{behind.port}", "example.test"], (behind.requests.map { |req| req["host"] })
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

  it "passes bodies on with their length, or in chunks" do
    behind = backend
    own = proxied(behind)
    assert_equal "with a length", ask(request("POST", "/api/x", {}, "with a length"), to: own).json["body"]
    assert_equal "in chunks", ask("POST /api/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;ext\r\nin \r\n6\r\nchunks\r\n0\r\nX-Trailer: 1\r\n\r\n", to: own).json["body"]
    assert_equal "", ask(request("POST", "/api/x", { "Content-Length" => "0" }), to: own).json["body"]
    first, second, = behind.requests
    assert_equal [["13"], []], [first.all("content-length"), first.all("transfer-encoding")]
    assert_equal 1, (second.all("content-length") + second.all("transfer-encoding")).size
    assert_nil second["x-trailer"]
  end

  it "passes a body on while it arrives" do
    pieces = Queue.new
    behind = backend { |conn, req| conn.read_body(req) { |piece| pieces << piece } && conn.respond("done") || conn.respond("done") }
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfirst")
    assert_equal "first", Timeout.timeout(10) { pieces.pop }
    connection.write("other")
    assert_equal "done", connection.read_response.body
  end

  it "sends 100 Continue to a client that waits for it" do
    behind = backend
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert_equal 100, connection.read_head.status
    connection.write("hello")
    assert_equal "hello", connection.read_response.json["body"]
  end

  it "passes a response on that arrives before the end of the body" do
    behind = backend { |conn, _| conn.respond("too large", status: "413 Content Too Large", headers: { "Connection" => "close" }) || conn.close }
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n#{'x' * 100_000}")
    response = connection.read_response
    assert_equal [413, "too large"], [response.status, response.body]
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

  it "applies a slow client's back-pressure to the backend" do
    sent = 0
    behind = backend do |conn, _|
      conn.write("HTTP/1.1 200 OK\r\nContent-Length: 400000000\r\n\r\n")
      4000.times { conn.write("x" * 100_000) && sent += 100_000 }
    end
    connection = connect(proxied(behind), receive_buffer: 4096)
    connection.write(request("GET", "/api/x"))
    connection.read_head
    wait_until(within: 2) { false }
    assert_operator sent, :<, 100_000_000
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

  it "passes responses without a body on: HEAD, 204, 304" do
    behind = backend { |conn, req| conn.write(req.verb == "HEAD" ? "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" : "HTTP/1.1 #{req.target[1, 3]} X\r\nETag: \"x\"\r\n\r\n") }
    own = proxied(behind)
    connection = connect(own)
    connection.write(request("HEAD", "/api/200"))
    assert_equal "999", connection.read_response("HEAD")["content-length"]
    [204, 304].each do |status|
      connection.write(request("GET", "/api/#{status}"))
      assert_status status, connection.read_response
    end
    assert connection.silent?
  end

  it "passes ranges and conditions on to the origin" do
    behind = backend { |conn, req| conn.respond("part", status: "206 Partial Content", headers: { "Content-Range" => "bytes 0-3/10", "X-Asked" => [req["range"], req["if-none-match"]].join("|") }) }
    response = get("/api/x", to: proxied(behind), headers: { "Range" => "bytes=0-3", "If-None-Match" => '"x"' })
    assert_equal [206, "part", "bytes 0-3/10", "bytes=0-3|\"x\""], [response.status, response.body, response["content-range"], response["x-asked"]]
  end

  it "passes early hints on" do
    behind = backend { |conn, _| conn.write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n") && conn.respond("ok") }
    response = get("/api/x", to: proxied(behind))
    assert_equal "ok", response.body
    assert_equal ["</a.css>; rel=preload"], (response.interim.map { |hint| hint["link"] })
  end

  it "does not compress a response again" do
    packed = Codings.gzip("text " * 1000)
    behind = backend { |conn, _| conn.respond(packed, headers: { "Content-Encoding" => "gzip" }) }
    response = get("/api/x", to: proxied(behind), headers: { "Accept-Encoding" => "gzip, br" })
    assert_equal ["gzip", packed], [response["content-encoding"], response.body]
  end

  it "responds to HTTP/1.0 without chunked coding" do
    behind = backend { |conn, _| conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n") }
    connection = connect(proxied(behind))
    connection.write("GET /api/x HTTP/1.0\r\n\r\n")
    response = connection.read_response
    assert_equal ["hello", []], [response.body, response.all("transfer-encoding")]
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

  it "reuses connections" do
    behind = backend
    own = proxied(behind)
    connection = connect(own)
    20.times { connection.write(request("GET", "/api/x")) && connection.read_response }
    assert_operator behind.connections.size, :<=, 2
  end

  it "notices that the origin closed an idle connection" do
    behind = backend { |conn, req| conn.respond(req.target) || conn.close }
    own = proxied(behind)
    connection = connect(own)
    10.times do |i|
      connection.write(request(i.odd? ? "POST" : "GET", "/api/#{i}", {}, i.odd? ? "body" : nil))
      assert_equal "/#{i}", connection.read_response.body
      sleep 0.05
    end
    assert_equal 10, behind.requests.size
  end

  it "retries a GET when a reused connection ends, and only then" do
    first = true
    behind = backend do |conn, req|
      conn.read_body(req)
      next conn.respond("first") if req.target == "/first"
      next conn.close if conn.number.zero?

      conn.respond("again #{first}")
    end
    own = proxied(behind)
    assert_equal "first", get("/api/first", to: own).body
    assert_status 200, get("/api/x", to: own)
  end

  it "never sends a POST twice" do
    behind = backend { |conn, req| req.target == "/first" ? conn.respond("first") : conn.read_body(req) && conn.close || conn.close }
    own = proxied(behind)
    get("/api/first", to: own)
    assert_status 502, post("/api/x", "body", to: own)
    assert_equal(1, behind.requests.count { |req| req.verb == "POST" })
  end

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

  # Sends a request that gets no response, and disconnects. Returns whether the backend notices.
  def backend_notices
    gone = Queue.new
    behind = backend { |conn, _| gone << conn.ended? }
    connection = connect(proxied(behind, read_timeout: "20s"))
    connection.write(request("GET", "/api/x"))
    wait_until("the request") { behind.requests.any? }
    yield connection
    Timeout.timeout(15) { gone.pop }
  end

  it "closes the backend's connection when a client resets its own" do
    assert backend_notices(&:reset!), "the backend's connection should end"
  end

  it "closes the backend's connection when a client closes its own" do
    assert backend_notices(&:close), "the backend's connection should end"
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

  it "uses the origins in turn" do
    behind = Array.new(3) { backend }
    own = served(proxies: { "/api": { origin: behind.map(&:origin) } })
    30.times { get("/api/x", to: own) }
    behind.each { |one| assert_in_delta 10, one.requests.size, 3 }
  end

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

  it "skips an origin that is down" do
    down = backend.tap(&:close)
    up = backend
    own = served(proxies: { "/api": { origin: [down.origin, up.origin] } })
    20.times { assert_status 200, get("/api/x", to: own) }
    assert_status 200, post("/api/x", "body", to: own)
  end

  it "responds with 502 when all origins are down" do
    down = Array.new(2) { backend.tap(&:close) }
    own = served(proxies: { "/api": { origin: down.map(&:origin) } })
    5.times { assert_status 502, get("/api/x", to: own) }
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

  it "closes both sides of a WebSocket when one closes" do
    connection, behind = websocket
    connection.read_through("welcome")
    connection.close
    wait_until("the backend to hear of it") { behind.connections.first.socket.closed? }
  end

  it "closes a client's WebSocket when the backend closes" do
    behind = backend { |conn, _| conn.write("#{SWITCHED}bye") && conn.close }
    connection = connect(proxied(behind))
    connection.write(request("GET", "/api/socket", UPGRADE))
    connection.read_through("bye")
    assert connection.ended?
  end

  it "passes a refused upgrade on as an ordinary response" do
    behind = backend { |conn, _| conn.respond("not you", status: "403 Forbidden") }
    connection = connect(proxied(behind))
    connection.write(request("GET", "/api/socket", UPGRADE))
    response = connection.read_response
    assert_equal [403, "not you"], [response.status, response.body]
    connection.write(request("GET", "/"))
    assert_equal "home", connection.read_response.body
  end

  it "does not upgrade if disabled" do
    behind = backend { |conn, req| conn.respond(req.all("upgrade").inspect) }
    own = proxied(behind, websocket: false)
    assert_equal "[]", get("/api/socket", to: own, headers: UPGRADE).body
  end

  it "refuses CONNECT, and refuses TRACE or passes it on without secrets" do
    behind = backend
    own = proxied(behind)
    assert_status 501, ask("CONNECT 127.0.0.1:#{behind.port} HTTP/1.1\r\nHost: 127.0.0.1:#{behind.port}\r\n\r\n", to: own)
    assert_empty behind.requests
  end
end
