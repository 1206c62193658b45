# frozen_string_literal: true

# What a client and a backend that both behave may expect of the proxy between them: everything as it comes, nothing
# twice, nobody kept waiting for somebody else.

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

  # --- what is asked

  it "passes path and query on as they came" do
    behind = backend
    own = proxied(behind)
    { "/api/a%20b?x=%2F&y=a+b" => "/a%20b?x=%2F&y=a+b", "/api/caf%C3%A9" => "/caf%C3%A9", "/api/a;b=c,d" => "/a;b=c,d", "/api/?a?b" => "/?a?b", "/api" => "/" }.each do |path, target|
      assert_equal target, get(path, to: own).json["target"], path
    end
  end

  it "lets no path out of the prefix" do
    behind = backend
    own = served(proxies: { "/api": { origin: behind.origin("/inside") } })
    ["/api/../secret", "/api/%2e%2e/secret", "/api/x/../../secret", "/api/..%2fsecret"].each { |path| get(path, to: own) }
    behind.asked.each { |asked| assert asked.target.start_with?("/inside/"), asked.target and refute_match(/\.\.|%2e%2e/i, asked.target) }
  end

  it "passes fields on, but not those that are for the proxy alone" do
    behind = backend
    own = proxied(behind)
    fields = { "Accept" => "text/x-mine", "Cookie" => "a=1; b=2", "X-Mine" => "1", "Connection" => "keep-alive, X-Private", "X-Private" => "1", "Keep-Alive" => "timeout=5", "TE" => "gzip", "Proxy-Connection" => "keep-alive", "Upgrade" => "h2c",
               "Authorization" => "Basic YTpi" }
    ask(request("GET", "/api/x", fields), to: own)
    asked = behind.asked.first
    assert_equal ["text/x-mine", "a=1; b=2", "1", "Basic YTpi"], (%w[accept cookie x-mine authorization].map { |name| asked[name] })
    %w[x-private keep-alive te proxy-connection upgrade transfer-encoding content-length].each { |name| assert_empty asked.all(name), name }
    refute_match(/x-private|upgrade/i, asked["connection"].to_s)
  end

  it "sends the origin's host, or the client's when told to" do
    behind = backend
    get("/api/x", to: proxied(behind))
    get("/api/x", to: proxied(behind, host: "client"))
    assert_equal ["127.0.0.1:#{behind.port}", "example.test"], (behind.asked.map { |asked| asked["host"] })
  end

  it "adds to what trusted proxies say of the client" do
    behind = backend
    own = proxied(behind)
    get("/api/x", to: own, headers: { "X-Forwarded-For" => "192.0.2.1", "X-Forwarded-Proto" => "https" })
    asked = behind.asked.first
    assert_equal "192.0.2.1, 127.0.0.1", asked["x-forwarded-for"]
    assert_equal "https", asked["x-forwarded-proto"]
    assert_equal "example.test", asked["x-forwarded-host"]
    assert_match(/for="?127\.0\.0\.1/, asked.all("forwarded").join(","))
  end

  it "believes nobody else" do
    behind = backend
    own = proxied(behind, args: ["--trusted-proxies", "none"])
    get("/api/x", to: own, headers: { "X-Forwarded-For" => "192.0.2.1", "X-Forwarded-Proto" => "https", "X-Forwarded-Host" => "evil.test", "X-Forwarded-Port" => "1", "Forwarded" => "for=192.0.2.1" })
    asked = behind.asked.first
    assert_equal %w[127.0.0.1 http example.test], (%w[x-forwarded-for x-forwarded-proto x-forwarded-host].map { |name| asked.all(name).join("+") })
    refute_includes asked.raw_head, "192.0.2.1"
    refute_includes asked.raw_head, "evil.test"
  end

  # --- bodies of requests

  it "passes bodies on with their length, or in chunks" do
    behind = backend
    own = proxied(behind)
    assert_equal "with a length", ask(request("POST", "/api/x", {}, "with a length"), to: own).json["body"]
    assert_equal "in chunks", ask("POST /api/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;ext\r\nin \r\n6\r\nchunks\r\n0\r\nX-Trailer: 1\r\n\r\n", to: own).json["body"]
    assert_equal "", ask(request("POST", "/api/x", { "Content-Length" => "0" }), to: own).json["body"]
    first, second, = behind.asked
    assert_equal [["13"], []], [first.all("content-length"), first.all("transfer-encoding")]
    assert_equal 1, (second.all("content-length") + second.all("transfer-encoding")).size
    assert_nil second["x-trailer"]
  end

  it "passes a body on while it comes" do
    pieces = Queue.new
    behind = backend { |visit, asked| visit.read_body(asked) { |piece| pieces << piece } && visit.answer("done") || visit.answer("done") }
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfirst")
    assert_equal "first", Timeout.timeout(10) { pieces.pop }
    connection.write("other")
    assert_equal "done", connection.read_response.body
  end

  it "says 100 Continue to who waits for it" do
    behind = backend
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert_equal 100, connection.read_head.status
    connection.write("hello")
    assert_equal "hello", connection.read_response.json["body"]
  end

  it "passes an answer on that comes before the whole body did" do
    behind = backend { |visit, _| visit.answer("too large", status: "413 Content Too Large", headers: { "Connection" => "close" }) || visit.close }
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n#{'x' * 100_000}")
    response = connection.read_response
    assert_equal [413, "too large"], [response.status, response.body]
  end

  it "passes large bodies on both ways, byte by byte" do
    body = Random.new(5).bytes(1 << 20) * 24
    behind = backend do |visit, asked|
      digest = Digest::SHA256.new
      visit.read_body(asked) { |piece| digest << piece }
      visit.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nX-Digest: #{digest.hexdigest}\r\n\r\n")
      visit.write(body)
    end
    response = post("/api/x", body, to: proxied(behind))
    assert_equal Digest::SHA256.hexdigest(body), response["x-digest"]
    assert_equal Digest::SHA256.hexdigest(body), Digest::SHA256.hexdigest(response.body)
  end

  it "lets a slow backend hold a fast client back" do
    behind = backend { |visit, _| sleep 3 and visit.answer("enough", headers: { "Connection" => "close" }) }
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

  # --- answers

  it "passes an answer on while it comes" do
    go = Queue.new
    behind = backend do |visit, _|
      visit.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
      3.times { |i| visit.chunk("data: #{i}\n\n") && go.pop }
      visit.write("0\r\n\r\n")
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

  it "lets a slow client hold a fast backend back" do
    sent = 0
    behind = backend do |visit, _|
      visit.write("HTTP/1.1 200 OK\r\nContent-Length: 400000000\r\n\r\n")
      4000.times { visit.write("x" * 100_000) && sent += 100_000 }
    end
    connection = connect(proxied(behind), receive_buffer: 4096)
    connection.write(request("GET", "/api/x"))
    connection.read_head
    wait_until(within: 2) { false }
    assert_operator sent, :<, 100_000_000
  end

  it "keeps cookies apart, and what is for the client" do
    behind = backend do |visit, _|
      visit.write("HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2; Path=/\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nETag: \"x\"\r\nConnection: X-Private, keep-alive\r\nX-Private: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: Basic\r\n" \
                  "Content-Length: 2\r\n\r\nok")
    end
    response = get("/api/x", to: proxied(behind))
    assert_equal ["a=1", "b=2; Path=/"], response.all("set-cookie")
    assert_equal ["Tue, 15 Nov 1994 08:12:31 GMT", "\"x\""], [response["date"], response["etag"]]
    assert_empty response.all("x-private") + response.all("keep-alive")
  end

  it "passes answers without a body on: HEAD, 204, 304" do
    behind = backend { |visit, asked| visit.write(asked.verb == "HEAD" ? "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" : "HTTP/1.1 #{asked.target[1, 3]} X\r\nETag: \"x\"\r\n\r\n") }
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

  it "passes ranges and conditions on, and leaves them to the origin" do
    behind = backend { |visit, asked| visit.answer("part", status: "206 Partial Content", headers: { "Content-Range" => "bytes 0-3/10", "X-Asked" => [asked["range"], asked["if-none-match"]].join("|") }) }
    response = get("/api/x", to: proxied(behind), headers: { "Range" => "bytes=0-3", "If-None-Match" => '"x"' })
    assert_equal [206, "part", "bytes 0-3/10", "bytes=0-3|\"x\""], [response.status, response.body, response["content-range"], response["x-asked"]]
  end

  it "passes early hints on" do
    behind = backend { |visit, _| visit.write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n") && visit.answer("ok") }
    response = get("/api/x", to: proxied(behind))
    assert_equal "ok", response.body
    assert_equal ["</a.css>; rel=preload"], (response.interim.map { |hint| hint["link"] })
  end

  it "leaves alone what the origin has compressed" do
    packed = Codings.gzip("text " * 1000)
    behind = backend { |visit, _| visit.answer(packed, headers: { "Content-Encoding" => "gzip" }) }
    response = get("/api/x", to: proxied(behind), headers: { "Accept-Encoding" => "gzip, br" })
    assert_equal ["gzip", packed], [response["content-encoding"], response.body]
  end

  it "answers HTTP/1.0 without chunks" do
    behind = backend { |visit, _| visit.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n") }
    connection = connect(proxied(behind))
    connection.write("GET /api/x HTTP/1.0\r\n\r\n")
    response = connection.read_response
    assert_equal ["hello", []], [response.body, response.all("transfer-encoding")]
  end

  it "answers pipelined requests in order" do
    behind = backend { |visit, asked| sleep(rand / 50) && visit.answer(asked.target) }
    connection = connect(proxied(behind))
    connection.write((1..30).map { |i| request("GET", (i % 5).zero? ? "/" : "/api/#{i}") }.join)
    (1..30).each { |i| assert_equal (i % 5).zero? ? "home" : "/#{i}", connection.read_response.body }
  end

  it "gives each of many clients its own answer" do
    behind = backend { |visit, asked| sleep(rand / 100) && visit.answer(asked.target) }
    own = proxied(behind)
    threads = Array.new(16) { |i| Thread.new { Array.new(20) { |j| get("/api/#{i}/#{j}", to: own).body == "/#{i}/#{j}" } } }
    assert(threads.all? { |thread| thread.value.all? })
  end

  # --- connections to the origin

  it "uses a connection again" do
    behind = backend
    own = proxied(behind)
    connection = connect(own)
    20.times { connection.write(request("GET", "/api/x")) && connection.read_response }
    assert_operator behind.visits.size, :<=, 2
  end

  it "notices that the origin has closed an idle connection" do
    behind = backend { |visit, asked| visit.answer(asked.target) || visit.close }
    own = proxied(behind)
    connection = connect(own)
    10.times do |i|
      connection.write(request(i.odd? ? "POST" : "GET", "/api/#{i}", {}, i.odd? ? "body" : nil))
      assert_equal "/#{i}", connection.read_response.body
      sleep 0.05
    end
    assert_equal 10, behind.asked.size
  end

  it "asks again when a kept connection ends under a GET, and only then" do
    first = true
    behind = backend do |visit, asked|
      visit.read_body(asked)
      next visit.answer("first") if asked.target == "/first"
      next visit.close if visit.number.zero?

      visit.answer("again #{first}")
    end
    own = proxied(behind)
    assert_equal "first", get("/api/first", to: own).body
    assert_status [200], get("/api/x", to: own)
  end

  it "never sends a POST twice" do
    behind = backend { |visit, asked| asked.target == "/first" ? visit.answer("first") : visit.read_body(asked) && visit.close || visit.close }
    own = proxied(behind)
    get("/api/first", to: own)
    assert_status 502, post("/api/x", "body", to: own)
    assert_equal(1, behind.asked.count { |asked| asked.verb == "POST" })
  end

  it "does not ask for ever when each answer is a closed connection" do
    behind = backend { |visit, _| visit.close }
    assert_status 502, get("/api/x", to: proxied(behind))
    assert_operator behind.asked.size, :<=, 3
  end

  it "finds a backend again that was killed and restarted" do
    behind = backend { |visit, _| visit.answer("old") }
    own = proxied(behind)
    5.times { assert_equal "old", get("/api/x", to: own).body }
    behind.close
    3.times { assert_status [502, 503], get("/api/x", to: own) }
    backend(port: behind.port) { |visit, _| visit.answer("new") }
    wait_until("the new backend", within: 15) { get("/api/x", to: own).body == "new" }
    5.times { assert_equal "new", get("/api/x", to: own).body }
  end

  # A request that is never answered, until its client leaves; whether the backend hears of it.
  def backend_hears
    gone = Queue.new
    behind = backend { |visit, _| gone << visit.ended? }
    connection = connect(proxied(behind, read_timeout: "20s"))
    connection.write(request("GET", "/api/x"))
    wait_until("the request") { behind.asked.any? }
    yield connection
    Timeout.timeout(15) { gone.pop }
  end

  it "tells the backend that a client has cut its connection" do
    assert backend_hears(&:reset!), "the backend's connection should end"
  end

  it "tells the backend that a client has closed its connection" do
    assert backend_hears(&:close), "the backend's connection should end"
  end

  it "tells the backend that a client has gone within its body" do
    ended = Queue.new
    behind = backend { |visit, asked| ended << (visit.read_body(asked) rescue :early) }
    connection = connect(proxied(behind))
    connection.write("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome")
    wait_until("the request") { behind.asked.any? }
    connection.reset!
    assert_equal :early, Timeout.timeout(15) { ended.pop }
  end

  it "answers 504 when the origin takes too long, and soon" do
    behind = backend { |visit, _| visit.ended? }
    own = proxied(behind, read_timeout: "300ms")
    assert_status 504, get("/api/x", to: own)
  end

  # --- several origins

  it "takes turns" do
    behind = Array.new(3) { backend }
    own = served(proxies: { "/api": { origin: behind.map(&:origin) } })
    30.times { get("/api/x", to: own) }
    behind.each { |one| assert_in_delta 10, one.asked.size, 3 }
  end

  it "goes to the one with fewest connections when told to" do
    slow = backend { |visit, _| sleep(9) && visit.answer("slow") }
    quick = backend { |visit, _| visit.answer("quick") }
    own = served(proxies: { "/api": { origin: [slow.origin, quick.origin], balance: "least_connections" } })
    2.times { connect(own).write(request("GET", "/api/x")) }
    wait_until("the slow one to be busy") { slow.asked.any? }
    6.times do
      sleep 0.1 # a request counts until the last of its answer has been let go of
      assert_equal "quick", get("/api/x", to: own).body
    end
  end

  it "passes over an origin that is down" do
    down = backend.tap(&:close)
    up = backend
    own = served(proxies: { "/api": { origin: [down.origin, up.origin] } })
    20.times { assert_status 200, get("/api/x", to: own) }
    assert_status 200, post("/api/x", "body", to: own)
  end

  it "answers 502 or 503 when all origins are down" do
    down = Array.new(2) { backend.tap(&:close) }
    own = served(proxies: { "/api": { origin: down.map(&:origin) } })
    5.times { assert_status [502, 503], get("/api/x", to: own) }
  end

  it "asks after the health of origins" do
    well = true
    health = ->(visit) { visit.answer("", status: well ? "200 OK" : "500 Sick") }
    sick = backend { |visit, asked| asked.target == "/up" ? health.call(visit) : visit.answer("sick") }
    sound = backend { |visit, _| visit.answer("sound") }
    own = served(proxies: { "/api": { origin: [sick.origin, sound.origin], health: { path: "/up", interval: "100ms", timeout: "1s", healthy: 2, unhealthy: 2 } } })
    wait_until("both in turn") { Array.new(4) { get("/api/x", to: own).body }.uniq.size == 2 }
    well = false
    wait_until("the sick one to be left out") { Array.new(4) { get("/api/x", to: own).body }.uniq == ["sound"] }
    10.times { assert_equal "sound", get("/api/x", to: own).body }
    well = true
    wait_until("both again") { Array.new(4) { get("/api/x", to: own).body }.uniq.size == 2 }
  end

  # --- other ways to an origin

  it "reaches origins on Unix sockets" do
    path = File.join(Dir.mktmpdir, "app.sock")
    behind = backend(unix: path)
    own = served(proxies: { "/api": { origin: "unix:#{path}" }, "/base": { origin: "unix:#{path}:/deep/base" } })
    assert_equal "/x?y", get("/api/x?y", to: own).json["target"]
    assert_equal "/deep/base/x", get("/base/x", to: own).json["target"]
    assert_equal 2, behind.asked.size
  ensure
    FileUtils.remove_entry(File.dirname(path))
  end

  # A backend that speaks TLS with a certificate of the authority's.
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

  it "reaches origins by TLS when it knows who signed for them, and refuses them otherwise" do
    with_authority do |authority, pem|
      behind = encrypted_backend(authority)
      assert_equal "/x", get("/api/x", to: proxied(behind, tls_ca: pem)).json["target"]
      assert_status 502, get("/api/x", to: proxied(behind))
      assert_equal "/x", get("/api/x", to: proxied(behind, tls_verify: false)).json["target"]
      assert_equal "/x", get("/api/x", to: proxied(behind, env: { "SSL_CERT_FILE" => pem })).json["target"]
      with_authority { |_, other| assert_status 502, get("/api/x", to: proxied(behind, tls_ca: other)) }
    end
  end

  it "reaches an origin whose certificate signs itself, as `openssl req -x509` makes them" do
    with_authority do |authority, pem|
      context = OpenSSL::SSL::SSLContext.new
      context.add_certificate(*authority)
      assert_equal "/x", get("/api/x", to: proxied(backend(tls: context), tls_ca: pem)).json["target"]
    end
  end

  it "refuses an origin whose certificate is out of date, though it is named" do
    with_authority(expired_certificate) do |authority, pem|
      context = OpenSSL::SSL::SSLContext.new
      context.add_certificate(*authority)
      own = proxied(backend(tls: context), tls_ca: pem)
      assert_status 502, get("/api/x", to: own)
      assert_match(/certificate expired/, own.stderr)
    end
  end

  it "refuses an origin whose certificate is somebody else's" do
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
    behind = backend do |visit, _|
      visit.write("#{SWITCHED}welcome")
      while (piece = visit.read_some)
        visit.write("echo #{piece}")
      end
      visit.close
    end
    connection = connect(proxied(behind, **options))
    connection.write(request("GET", "/api/socket", UPGRADE))
    [connection, behind]
  end

  it "passes WebSockets through, both ways, from the first byte" do
    connection, behind = websocket
    head = connection.read_head
    assert_equal [101, "websocket", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="], [head.status, head["upgrade"].downcase, head["sec-websocket-accept"]]
    assert_includes head.connection, "upgrade"
    assert_equal "welcome", connection.read_exactly(7)
    5.times do |i|
      connection.write("frame #{i}")
      assert_equal "echo frame #{i}", connection.read_exactly(12)
    end
    assert_equal %w[13 websocket], [behind.asked.first["sec-websocket-version"], behind.asked.first["upgrade"].downcase]
  end

  it "ends both sides of a WebSocket when one ends" do
    connection, behind = websocket
    connection.read_through("welcome")
    connection.close
    wait_until("the backend to hear of it") { behind.visits.first.socket.closed? }
  end

  it "ends a client's WebSocket when the backend ends" do
    behind = backend { |visit, _| visit.write("#{SWITCHED}bye") && visit.close }
    connection = connect(proxied(behind))
    connection.write(request("GET", "/api/socket", UPGRADE))
    connection.read_through("bye")
    assert connection.ended?
  end

  it "passes a refused upgrade on as an ordinary answer" do
    behind = backend { |visit, _| visit.answer("not you", status: "403 Forbidden") }
    connection = connect(proxied(behind))
    connection.write(request("GET", "/api/socket", UPGRADE))
    response = connection.read_response
    assert_equal [403, "not you"], [response.status, response.body]
    connection.write(request("GET", "/"))
    assert_equal "home", connection.read_response.body
  end

  it "does not upgrade when told not to" do
    behind = backend { |visit, asked| visit.answer(asked.all("upgrade").inspect) }
    own = proxied(behind, websocket: false)
    assert_equal "[]", get("/api/socket", to: own, headers: UPGRADE).body
  end

  it "refuses CONNECT, and ends TRACE before the origin or passes it on without secrets" do
    behind = backend
    own = proxied(behind)
    assert_status [400, 405, 501], ask("CONNECT 127.0.0.1:#{behind.port} HTTP/1.1\r\nHost: 127.0.0.1:#{behind.port}\r\n\r\n", to: own)
    assert_empty behind.asked
  end
end
