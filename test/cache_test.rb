# frozen_string_literal: true

# The cache of responses: what an app is asked, and what clients get.

require "json"
require "support/case"
require "support/codings"
require "support/redis_server"
require "support/upgrading"
require "tempfile"
require "tmpdir"

class CacheTest < Case
  include RedisServer
  include Upgrading
  parallel!

  # A descriptor each, here and in the server.
  CLIENTS = Integer(ENV.fetch("CACHE_CLIENTS", 200))

  # Each response has a number, so a test sees whether the app was asked.
  APP = <<~'RUBY'
    COUNT = Hash.new(0)
    LOCK = Mutex.new
    FAIL = []
    class Slow
      def initialize(*pieces) = @pieces = pieces
      def each = @pieces.each { |piece| (yield piece; sleep 0.2) }
    end
    run lambda { |env|
      path = env["PATH_INFO"]
      number = LOCK.synchronize { COUNT[path] += 1 }
      text = ->(fields) { { "content-type" => "text/plain" }.merge(fields) }
      body = ["#{path} #{number} #{env["HTTP_COOKIE"]}"]
      query = env["QUERY_STRING"]
      sleep query[/sleep=([0-9.]+)/, 1].to_f
      sleep query[/post=([0-9.]+)/, 1].to_f if env["REQUEST_METHOD"] == "POST"
      case path
      when %r{\A/page} then [200, text.("cache-control" => "public, max-age=60", "surrogate-key" => "pages page-#{path[-1]}"), body]
      when "/short" then [200, text.("cache-control" => "max-age=1, stale-while-revalidate=30"), body]
      when "/expired" then [200, text.("cache-control" => "max-age=1"), body]
      when "/private" then [200, text.("cache-control" => "private, max-age=60"), body]
      when "/cookie" then [200, text.("cache-control" => "max-age=60", "set-cookie" => "a=1"), body]
      when "/plain" then [200, text.({}), body]
      when "/tagged"
        known = env["HTTP_IF_NONE_MATCH"] == '"v1"'
        fields = { "cache-control" => "public, no-cache", "etag" => '"v1"' }
        known ? [304, fields, []] : [200, text.(fields), body]
      when "/fragile"
        fields = { "cache-control" => "max-age=0, stale-if-error=60", "etag" => '"f"' }
        FAIL.any? ? [503, text.({}), ["down"]] : [200, text.(fields), body]
      when "/slow"
        fields = { "cache-control" => "max-age=0, stale-if-error=60", "etag" => "\"s#{number}\"" }
        sleep 2.5 if number > 1
        [200, text.(fields), body]
      when "/break" then FAIL << true; [204, {}, []]
      when "/stream" then [200, text.("cache-control" => "max-age=60"), Slow.new("one ", "two ", "three")]
      when "/parts" then [200, text.("cache-control" => "max-age=60"), Array.new(40) { "x" * 5000 }]
      when "/large" then [200, text.("cache-control" => "max-age=60"), ["x" * 30_000]]
      when "/huge" then [200, text.("cache-control" => "max-age=60"), Slow.new("x" * 1_500_000, number.to_s)]
      when "/die" then Process.kill("KILL", Process.pid)
      else [200, text.({}), ["created"]]
      end
    }
  RUBY

  shared_server app: APP, settings: { cache: { memory: "16MiB" } }, threads: "1:8"

  def setup
    firebrick_only
  end

  def body(path, **options) = get(path, **options).body

  def status(response) = response["cache-status"].to_s.delete_prefix("Firebrick; ")

  it "asks the app once for what it may keep" do
    first = get("/page/a")
    assert_equal "fwd=uri-miss; stored", status(first)
    again = get("/page/a", headers: { "Cookie" => "other=client" })
    assert_equal first.body, again.body
    assert_match(/\Ahit; ttl=(60|59|58)\z/, status(again))
    assert_match(/\A[012]\z/, again["age"])
    assert_nil again["surrogate-key"]
    assert_nil first["surrogate-key"]
    head = ask(request("HEAD", "/page/a"))
    assert_equal [200, again["content-length"]], [head.status, head["content-length"]]
  end

  it "never keeps what belongs to one client" do
    %w[/private /cookie /plain].each do |path|
      assert_match(/ 1 one\z/, body(path, headers: { "Cookie" => "one" }))
      assert_match(/ 2 two\z/, body(path, headers: { "Cookie" => "two" }))
    end
    assert_equal "fwd=uri-miss; detail=private", status(get("/private"))
    secret = { "Authorization" => "Basic x" }
    assert_equal "/page/secret 1 ", body("/page/secret", headers: secret)
    assert_equal "/page/secret 2 ", body("/page/secret", headers: secret)
  end

  it "lets the app confirm what it kept, for clients with and without a version" do
    assert_equal "/tagged 1 ", body("/tagged")
    again = get("/tagged")
    assert_equal ["/tagged 1 ", "fwd=stale; fwd-status=304; stored"], [again.body, status(again)]
    assert_status 304, get("/tagged", headers: { "If-None-Match" => '"v1"' })
    assert_status 200, get("/tagged", headers: { "If-None-Match" => '"v0"' })
  end

  it "sends a stale page while one request renews it" do
    first = body("/short")
    sleep 1.2
    stale = get("/short")
    assert_equal first, stale.body
    assert_match(/\Ahit; ttl=-?\d+\z/, status(stale))
    wait_until("the page to be renewed") { body("/short") != first }
  end

  it "asks the app once for many clients of an expired page, whatever the first of them does" do
    body("/expired?sleep=0.5")
    sleep 1.1
    clients = Array.new(CLIENTS) { connect }
    took = elapsed do
      clients.each { |client| client.write(request("GET", "/expired?sleep=0.5")) }
      pages = clients.map(&:read_response)
      assert_equal 1, pages.map(&:body).uniq.size
      assert_equal(CLIENTS - 1, pages.count { |page| status(page).include?("collapsed") })
    end
    # Eight at a time would take more than 12 s.
    assert_operator took, :<, 6
  end

  it "goes on when the client that asked first goes away" do
    leaving = connect
    leaving.write(request("GET", "/page/left?sleep=0.6"))
    sleep 0.2
    waiting = Thread.new { get("/page/left?sleep=0.6") }
    sleep 0.1
    leaving.close
    assert_status 200, waiting.value
  end

  it "notices at once that a client has gone which waits for an equal request" do
    own = start(app: APP, settings: { cache: { memory: "16MiB" } })
    open = -> { own.stats.dig("connections", "open") }
    first = Thread.new { body("/page/long?sleep=6", to: own) }
    wait_until("the first request") { open.call == 1 }
    sleep 0.5
    waiting = connect(own)
    waiting.write(request("GET", "/page/long?sleep=6"))
    wait_until("the second request") { open.call == 2 }
    sleep 0.5
    waiting.close
    wait_until("its departure") { open.call == 1 }
    assert_predicate first, :alive?
    assert_equal "/page/long 1 ", first.value
  end

  it "keeps nothing that a client's own X-Forwarded-Host may have changed" do
    own = start(app: APP, settings: { cache: { memory: "16MiB" }, rack: { trusted_proxies: ["none"] } })
    evil = { "X-Forwarded-Host" => "evil.example" }
    assert_equal "fwd=uri-miss; detail=forwarded", status(get("/page/a", headers: evil, to: own))
    assert_equal "/page/a 2 ", body("/page/a", to: own)
    assert_equal "/page/a 3 ", body("/page/a", headers: evil, to: own)
    assert_equal "/page/a 2 ", body("/page/a", to: own)
    trusting = start(app: APP, settings: { cache: { memory: "16MiB" } })
    pages = [evil, {}, evil, {}].map { |headers| body("/page/a", headers: headers, to: trusting) }
    assert_equal ["/page/a 1 ", "/page/a 2 "] * 2, pages
  end

  it "reads a body ahead of a slow first client" do
    slow = connect
    slow.write(request("GET", "/stream"))
    slow.read_head
    assert_equal "one two three", body("/stream")
    assert_match(/\Ahit/, status(get("/stream")))
  end

  it "keeps a body of many long parts" do
    assert_equal 200_000, body("/parts").bytesize
    again = get("/parts")
    assert_match(/\Ahit/, status(again))
    assert_equal "x" * 200_000, again.body
  end

  it "does not keep a body that is too long, and sends it whole" do
    [1, 2].each do |number|
      assert_equal 1_500_000 + 1, body("/huge").bytesize, number
    end
    assert_includes server.stats["kept_responses"]["refused"].to_h { |one| [one["reason"], one["count"]] }.select { |_, count| count.positive? }.keys, "too-long"
  end

  it "sends parts and compressed forms of a kept body" do
    whole = body("/large")
    part = get("/large", headers: { "Range" => "bytes=5-9" })
    assert_equal [206, "bytes 5-9/30000", "xxxxx"], [part.status, part["content-range"], part.body]
    assert_status 416, get("/large", headers: { "Range" => "bytes=90000-" })
    wait_until("the compressed form") do
      coded = get("/large", headers: { "Accept-Encoding" => "gzip" })
      assert_equal whole, Codings.decode(coded)
      assert_equal %w[gzip Accept-Encoding], [coded["content-encoding"], coded["vary"]]
      coded["content-length"]
    end
  end

  it "removes what a request with an unsafe method changes" do
    first = body("/page/changed")
    post("/page/changed", "x")
    refute_equal first, body("/page/changed")
  end

  it "asks again for a client that wants a newer page, and answers another only from what it has" do
    first = body("/page/newer")
    refute_equal first, body("/page/newer", headers: { "Cache-Control" => "no-cache" })
    assert_status 504, get("/page/never", headers: { "Cache-Control" => "only-if-cached" })
  end

  it "sends what it has when the app fails" do
    own = start(app: APP, settings: { cache: { memory: "16MiB" } })
    first = body("/fragile", to: own)
    get("/break", to: own)
    stale = get("/fragile", to: own)
    assert_equal [200, first], [stale.status, stale.body]
    assert_match(/fwd=stale; fwd-status=503/, status(stale))
    assert_status 503, get("/fragile?other", to: own)
  end

  it "sends what it has when the app is slow, and the new page when it has arrived" do
    own = start(app: APP, settings: { cache: { memory: "16MiB", stale_if_slow: 0.3 } })
    first = body("/slow", to: own)
    pages = nil
    assert_operator elapsed { pages = Array.new(8) { Thread.new { body("/slow", to: own) } }.map(&:value) }, :<, 2.2
    assert_equal [first], pages.uniq
    wait_until("the new page") { body("/slow", to: own) != first }
  end

  it "does not ask a failing app for each of many clients" do
    own = start(app: APP, settings: { cache: { memory: "16MiB" } })
    get("/fragile", to: own)
    get("/break", to: own)
    before = own.stats["requests"]
    Array.new(30) { Thread.new { assert_status 200, get("/fragile", to: own) } }.each(&:join)
    served = own.stats["workers"].sum { |worker| worker["requests"] }
    # The first page, /break, and a few of the thirty.
    assert_operator served, :<, 10, before
  end

  it "purges paths, tags and everything, and shows what it keeps" do
    own = start(app: APP, settings: { cache: { memory: "16MiB" } })
    run = ->(*args) { own.command_line("cache", *args, "--dir", own.dir) }
    pages = %w[/page/a /page/b /page/b?x /page/c]
    fill = -> { pages.to_h { |path| [path, body(path, to: own)] } }
    changed = ->(before) { fill.call.reject { |path, text| before[path] == text }.keys }
    before = fill.call
    assert_equal ["purged: 2 resources\n", "", 0], run.call("purge", "/page/b")
    assert_equal %w[/page/b /page/b?x], changed.call(before)
    before = fill.call
    assert_equal "purged: 1 resource\n", run.call("purge", "--tag", "page-c").first
    assert_equal %w[/page/c], changed.call(before)
    assert_equal "purged: 4 resources\n", run.call("purge", "/page/*").first
    fill.call
    assert_equal "purged: 4 resources\n", run.call("purge", "--all").first
    fill.call
    out, = run.call
    assert_match(/kept +4 resources/, out)
    assert_match(%r{/page/a}, out)
    _, err, code = run.call("purge", "page")
    assert_match(/"page" is neither a path nor a URL/, err)
    assert_equal 1, code
    _, err, code = run.call("purge")
    assert_match(/nothing is named/, err)
    assert_equal 2, code
    out, = own.command_line("explain", "/page/a", own.dir)
    assert_match(%r{The cache keeps, for the key http://example.test/page/a:\n +200, .*fresh for .*because cache-control: public, max-age=60}, out)
    out, = own.command_line("explain", "/private", own.dir)
    assert_match(/The cache keeps nothing for/, out)
    report = JSON.parse(run.call("--json").first)
    assert_equal 4, report.dig("cache", "resources")
  end

  it "keeps what it has over a reload, or empties it" do
    keeping = start(app: APP, settings: { cache: { memory: "16MiB" } })
    first = body("/page/a", to: keeping)
    assert_reloads(keeping)
    assert_equal first, body("/page/a", to: keeping)
    emptying = start(app: APP, settings: { cache: { memory: "16MiB", on_reload: "empty" } })
    get("/page/a", to: emptying)
    assert_reloads(emptying)
    assert_match(/uri-miss/, status(get("/page/a", to: emptying)))
  end

  it "hands what it has to the program of an upgrade, without what is removed meanwhile" do
    own = launch(app: APP, settings: { cache: { memory: "16MiB" } })
    before = %w[/page/a /page/b].to_h { |path| [path, body(path, to: own)] }
    # The old program has this request until the new one serves.
    running = connect(own)
    running.write(request("GET", "/page/c?sleep=3"))
    out = assert_upgrades(own, follow: false)
    own.command_line("cache", "purge", "/page/b", "--dir", own.dir)
    assert_status 200, running.read_response
    own.follow(new_pid(out))
    wait_until("the pages of the old program") { own.stats.dig("kept_responses", "resources").to_i >= 2 }
    assert_match(/\Ahit/, status(get("/page/a", to: own)))
    assert_equal before["/page/a"], body("/page/a", to: own)
    assert_match(/uri-miss/, status(get("/page/b", to: own)))
  end

  it "invalidates in the program of an upgrade what a request changes that the old one finishes" do
    own = launch(app: APP, settings: { cache: { memory: "16MiB" } })
    # The old program has these requests while the new one serves.
    running = connect(own)
    running.write(request("POST", "/page/c?post=8", {}, "x"))
    kept = connect(own)
    kept.write(request("GET", "/page/d?sleep=14"))
    out = assert_upgrades(own, follow: false)
    first = body("/page/c?post=8", to: own)
    other = body("/page/a", to: own)
    assert_equal first, body("/page/c?post=8", to: own), "the new program keeps it"
    assert_status 200, running.read_response
    assert_equal "uri-miss", wait_until("the new program to hear it") { status(get("/page/c?post=8", to: own))[/uri-miss/] }
    assert_equal other, body("/page/a", to: own)
    kept.read_response
    own.follow(new_pid(out))
  end

  it "tells purges to the other servers through Redis, also those that Redis has lost meanwhile" do
    with_redis do |url, _|
      settings = { cache: { memory: "16MiB" }, shared: { redis: url } }
      one, other = Array.new(2) { start(app: APP, settings: settings) }
      body("/page/a", to: one)
      first = body("/page/a", to: other)
      out, err, code = one.command_line("cache", "purge", "/page/a", "--dir", one.dir)
      assert_equal ["purged: 1 resource; the purge was published to the other servers of the group\n", 0], [out, code], err
      wait_until("the other server to hear it") { body("/page/a", to: other) != first }
    end
  end

  it "carries out the purges that were told while it was down, and only those" do
    with_redis do |url, _|
      Dir.mktmpdir do |folder|
        shared = { cache: { memory: "16MiB" }, shared: { redis: url } }
        on_disk = { cache: { memory: "16MiB", disk: folder }, shared: { redis: url } }
        other = start(app: APP, settings: shared)
        first = start(app: APP, settings: on_disk)
        # A page shows the cookie of the client for which it was generated.
        read = ->(path, cookie, from) { body(path, to: from, headers: { "Cookie" => cookie }) }
        pages = %w[/page/a /page/b /page/c].to_h { |path| [path, read.call(path, "first", first)] }
        wait_until("the files") { first.stats.dig("kept_responses", "disk_files") == pages.size }
        wait_until("the place in the stream") { File.exist?(File.join(folder, "purges")) }
        # A removal right before the end is one that the next process must know.
        post("/page/c", "x", to: first)
        assert_empty first.finish
        other.command_line("cache", "purge", "/page/a", "--dir", other.dir)
        again = start(app: APP, settings: on_disk)
        wait_until("the purge") { read.call("/page/a", "again", again) != pages["/page/a"] }
        assert_equal pages["/page/b"], read.call("/page/b", "again", again)
        refute_equal pages["/page/c"], read.call("/page/c", "again", again)
        assert_empty again.finish
        # Without its place, the server cannot know what was purged.
        File.delete(File.join(folder, "purges"))
        last = start(app: APP, settings: on_disk)
        wait_until("all pages to be removed") { read.call("/page/b", "last", last) != pages["/page/b"] }
        # It writes to the folder until then.
        assert_empty last.finish
      end
    end
  end

  it "carries out the purges that were told before it could reach Redis" do
    with_redis do |url, _|
      redis = Integer(url[/:(\d+)/, 1])
      free = TCPServer.open("127.0.0.1", 0) { |socket| socket.local_address.ip_port }
      own, other = [free, redis].map do |port|
        start(app: APP, settings: { cache: { memory: "16MiB" }, shared: { redis: "redis://127.0.0.1:#{port}/0" } })
      end
      first = body("/page/a", to: own)
      other.command_line("cache", "purge", "/page/a", "--dir", other.dir)
      assert_equal first, body("/page/a", to: own)
      with_forwarding(free, redis) { wait_until("the purge") { body("/page/a", to: own) != first } }
    end
  end

  # Forwards connections from one port to another.
  def with_forwarding(from, to)
    listener = TCPServer.new("127.0.0.1", from)
    forwarder = Thread.new do
      loop do
        ends = [listener.accept, TCPSocket.new("127.0.0.1", to)]
        [ends, ends.reverse].each { |source, target| Thread.new { IO.copy_stream(source, target) rescue nil } }
      end
    end
    yield
  ensure
    forwarder&.kill
    listener&.close
  end

  it "says so when the other servers cannot be told" do
    free = TCPServer.open("127.0.0.1", 0) { |socket| socket.local_address.ip_port }
    own = start(app: APP, settings: { cache: { memory: "16MiB" }, shared: { redis: "redis://127.0.0.1:#{free}/0" } })
    get("/page/a", to: own)
    _, err, code = own.command_line("cache", "purge", "/page/a", "--dir", own.dir)
    assert_match(/purged: 1 resource, but the other servers were not told: /, err)
    assert_equal 1, code
    assert_match(/uri-miss/, status(get("/page/a", to: own)))
  end

  it "finds on disk what an earlier process has kept, also after a purge and with damaged files" do
    Dir.mktmpdir do |folder|
      settings = { cache: { memory: "1MiB", disk: folder } }
      pages = (1..80).map { |number| "/page/#{number}?#{'x' * 200}" }
      first = start(app: APP, settings: settings)
      before = pages.to_h { |path| [path, body(path, to: first)] }
      wait_until("the files") { first.stats.dig("kept_responses", "disk_files") == pages.size }
      first.command_line("cache", "purge", pages[0], "--dir", first.dir)
      assert_empty first.finish
      damaged = Dir[File.join(folder, "??", "*")].first
      File.binwrite(damaged, File.binread(damaged).sub("page", "PAGE"))
      File.write(File.join(folder, "notes.txt"), "mine")
      again = start(app: APP, settings: settings)
      wait_until("the index") { again.stats.dig("kept_responses", "disk_files") == pages.size - 2 }
      hits = pages.count { |path| status(get(path, to: again)).start_with?("hit") }
      assert_equal pages.size - 2, hits
      same = pages.count { |path| body(path, to: again) == before[path] }
      assert_operator same, :>=, pages.size - 2
      assert_equal "mine", File.read(File.join(folder, "notes.txt"))
    end
  end

  it "says at the start that a folder cannot be used" do
    Tempfile.create("file") do |file|
      own = Server.new(app: APP, settings: { cache: { memory: "1MiB", disk: "#{file.path}/sub" } })
      _, err, code = own.command_line("serve", own.dir, "-p", "0")
      assert_match(/cache.disk: #{Regexp.escape(file.path)}/, err)
      assert_equal 1, code
    ensure
      own&.finish
    end
  end

  it "is off by default" do
    own = start(app: APP)
    assert_nil get("/page/a", to: own)["cache-status"]
    refute_equal body("/page/a", to: own), body("/page/a", to: own)
    assert_nil own.stats["kept_responses"]
    assert_match(/the cache is off: set cache.memory/, own.command_line("cache", "--dir", own.dir).first)
  end
end
