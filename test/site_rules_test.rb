# frozen_string_literal: true

# static.json as Heroku's static buildpack interpreted it, where files, fields, passwords and origins decide; what the rules
# alone decide is asked in server/content/site/src/rules/tests. Where the buildpack had defects, "compat": "heroku" keeps
# them; everything else is tested with and without it.

require "support/site_case"

class SiteRulesTest < SiteCase
  parallel!

  COMPAT = { compat: "heroku" }.freeze
  PASSWORD = "p\u00e4ss:word"
  SHA = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=" # password

  class << self
    # Runs the same test with the plain keys and with "compat": "heroku".
    def always(sentence, &block)
      it(sentence) { instance_exec({}, &block) }
      it("#{sentence} (compat)") { instance_exec(COMPAT, &block) }
    end
  end

  def setup
    firebrick_only
  end

  def https(**more)
    { "X-Forwarded-Proto" => "https" }.merge(more.transform_keys(&:to_s))
  end

  # --- root

  always "serves another root, with and without a slash at its end" do |extra|
    ["site", "site/", "./site", "deep/er/"].each do |root|
      own = site(extra.merge(root: root), files: { "#{root.delete_prefix('./').chomp('/')}/index.html" => "site", "public_html/index.html" => "public" })
      assert_page "site", "/", own
    end
  end

  it "serves the site's directory itself, except private files" do
    own = site({ root: "." }, files: { "index.html" => "home", ".env" => "secret" })
    assert_page "home", "/", own
    refute_includes get("/.env", to: own).body, "secret"
  end

  # --- redirects

  always "matches redirects on the decoded path, and never keeps the query" do |extra|
    own = served(extra.merge(redirects: { "/old page": { url: "https://new.test/" }, "/caf\u00e9": { url: "https://cafe.test/" } }))
    assert_equal "https://new.test/", get("/old%20page?a=1", to: own)["location"]
    assert_equal "https://cafe.test/", get("/caf%C3%A9", to: own)["location"]
  end

  always "redirects requests of any method" do |extra|
    own = served(extra.merge(redirects: { "/old": { url: "https://new.test/" } }))
    assert_status 301, post("/old", "body", to: own)
    assert_status 301, head("/old", to: own)
  end

  # --- error_page

  always "answers 404 with the error page, and keeps the status" do |extra|
    own = served(extra.merge(error_page: "errors/error.html"), "errors/error.html" => "<p>sorry")
    response = get("/missing", to: own)
    assert_equal [404, "<p>sorry"], [response.status, response.body]
    assert_match(%r{\Atext/html}, response["content-type"])
    assert_page "<p>sorry", "/errors/error.html", own
    assert_equal ["8", ""], [head("/missing", to: own)["content-length"], head("/missing", to: own).body]
  end

  always "answers 404 with the error page for a route without a target file, too" do |extra|
    own = served(extra.merge(error_page: "error.html", routes: { "/assets/*": "/assets/" }), "error.html" => "sorry")
    response = get("/assets/x.js", to: own)
    assert_equal [404, "sorry"], [response.status, response.body]
  end

  always "sends a built-in page when the error page is missing" do |extra|
    own = served(extra.merge(error_page: "nowhere.html"))
    assert_missing "/missing", own
  end

  it "responds with 404.html to missing paths if it exists, but not with compat" do
    assert_equal "mine", get("/missing", to: served({}, "404.html" => "mine")).body
    refute_equal "mine", get("/missing", to: served(COMPAT, "404.html" => "mine")).body
  end

  # --- https_only and canonical_host

  always "redirects to https unless X-Forwarded-Proto is https" do |extra|
    own = served(extra.merge(https_only: true), "page.html" => "page")
    [{}, { "X-Forwarded-Proto" => "http" }].each do |headers|
      response = get("/page.html?a=%20b", to: own, headers: headers)
      assert_equal [301, "https://example.test/page.html?a=%20b"], [response.status, response["location"]]
    end
    assert_page "page", "/page.html", own, headers: https
    assert_missing "/missing", own, headers: https
  end

  always "redirects to the canonical host" do |extra|
    own = served(extra.merge(canonical_host: "www.example.test"), "page.html" => "page")
    response = get("/page.html?a=1", to: own, headers: https)
    assert_equal [301, "https://www.example.test/page.html?a=1"], [response.status, response["location"]]
    response = get("/missing", to: own, headers: { "X-Forwarded-Proto" => "http" })
    assert_equal [301, "http://www.example.test/missing"], [response.status, response["location"]]
    assert_page "page", "/page.html", own, headers: https("Host" => "www.example.test")
  end

  # --- headers

  always "sends headers on redirects, errors, 304s and responses of origins" do |extra|
    behind = backend
    own = served(extra.merge(headers: { "/**": { "X-Every" => "1" } }, redirects: { "/old": { url: "/new" } }, proxies: { "/api": { origin: behind.origin } }), "dir/index.html" => "dir")
    %w[/ /old /missing /api/x /dir].each { |path| assert_equal "1", get(path, to: own)["x-every"], path }
    assert_equal "1", get("/", to: own, headers: { "If-None-Match" => "*" })["x-every"]
    assert_equal "1", get("/", to: own, headers: { "Range" => "bytes=0-1" })["x-every"]
    assert_equal "1", get("/", to: own, headers: { "Range" => "bytes=100-" })["x-every"]
    assert_equal "1", head("/", to: own)["x-every"]
  end

  always "sends headers on the redirect to https and on 401" do |extra|
    headers = { headers: { "/**": { "X-Every" => "1" } } }
    assert_equal "1", get("/", to: served(extra.merge(headers).merge(https_only: true)))["x-every"]
    assert_equal "1", get("/", to: served(extra.merge(headers).merge(basic_auth: true, basic_auth_htpasswd_path: ".htpasswd"), "/.htpasswd" => "u:#{SHA}\n"))["x-every"]
  end

  it "replaces the server's own fields" do
    own = served(headers: { "/**": { "Content-Type" => "text/x-mine", "Cache-Control" => "no-store" } })
    response = get("/", to: own)
    assert_equal %w[text/x-mine no-store], [response["content-type"], response["cache-control"]]
  end

  # --- proxies

  always "maps a prefix onto an origin without a path" do |extra|
    behind = backend
    own = served(extra.merge(proxies: { "/api": { origin: behind.origin } }))
    assert_equal "/x", get("/api/x", to: own).json["target"]
    assert_equal "/", get("/api/", to: own).json["target"]
    assert_equal "/a%20b;c", get("/api/a%20b;c", to: own).json["target"]
  end

  always "passes methods and bodies on, and sends the origin's host" do |extra|
    behind = backend
    own = served(extra.merge(proxies: { "/api": { origin: behind.origin } }))
    response = ask(request("PATCH", "/api/x", { "Content-Type" => "text/plain" }, "body"), to: own)
    assert_equal %w[PATCH body], response.json.values_at("method", "body")
    assert_equal ["127.0.0.1:#{behind.port}"], behind.requests.first.all("host")
  end

  it "sends forwarded fields to the origin, but not with compat" do
    behind = backend
    get("/api/x", to: served(proxies: { "/api": { origin: behind.origin } }))
    get("/api/x", to: served(COMPAT.merge(proxies: { "/api": { origin: behind.origin } })))
    plain, with_compat = behind.requests
    assert_equal(%w[127.0.0.1 http example.test], %w[x-forwarded-for x-forwarded-proto x-forwarded-host].map { |name| plain[name] })
    assert_empty(%w[x-forwarded-for x-forwarded-proto x-forwarded-host forwarded].flat_map { |name| with_compat.all(name) })
  end

  always "rewrites Location from the origin back to the prefix, in both schemes" do |extra|
    behind = backend { |conn, req| conn.respond("", status: "302 Found", headers: { "Location" => req["x-location"] }) }
    own = served(extra.merge(proxies: { "/api": { origin: behind.origin("/base") } }))
    { "#{behind.origin('/base')}/x?y=1" => "/api/x?y=1", "https://127.0.0.1:#{behind.port}/base/x" => "/api/x", "https://elsewhere.test/x" => "https://elsewhere.test/x" }.each do |sent, seen|
      response = get("/api/go", to: own, headers: { "X-Location" => sent })
      assert_equal seen, response["location"].sub(%r{\Ahttp://example\.test(:\d+)?(?=/)}, ""), sent
    end
  end

  # --- basic_auth

  def basic(user, password)
    { "Authorization" => "Basic #{["#{user}:#{password}"].pack('m0')}" }
  end

  def hashed(kind, password)
    command = { apr1: ["openssl", "passwd", "-apr1", password], bcrypt: ["htpasswd", "-nbB", "-C", "4", "u", password], sha: ["htpasswd", "-nbs", "u", password] }.fetch(kind)
    out, status = Open3.capture2(*command)
    flunk "#{command.first} failed" unless status.success?
    out.strip.delete_prefix("u:")
  rescue Errno::ENOENT
    skip "needs #{command.first}"
  end

  %i[apr1 bcrypt sha].each do |kind|
    always "accepts a password hashed with #{kind}" do |extra|
      own = served(extra.merge(basic_auth: true, basic_auth_htpasswd_path: ".htpasswd"), "/.htpasswd" => "other:#{hashed(:sha, 'x')}\nada:#{hashed(kind, PASSWORD)}\n", "page.html" => "page")
      assert_page "page", "/page.html", own, headers: basic("ada", PASSWORD)
      [{}, basic("ada", "wrong"), basic("ada", ""), basic("bob", PASSWORD), basic("other", PASSWORD), { "Authorization" => "Basic !!!" }, { "Authorization" => "Bearer x" }, { "Authorization" => "Basic" }].each do |headers|
        response = get("/page.html", to: own, headers: headers)
        assert_status 401, response, headers.inspect
        assert_match(/\ABasic realm="Restricted"/, response["www-authenticate"])
        refute_includes response.body, "page"
      end
      assert_status 200, get("/page.html", to: own, headers: { "Authorization" => "bAsIc #{["ada:#{PASSWORD}"].pack('m0')}" })
    end
  end

  always "keeps everything behind the password: files, routes, redirects, proxies, missing files" do |extra|
    behind = backend
    own = served(extra.merge(basic_auth: true, basic_auth_htpasswd_path: ".htpasswd", proxies: { "/api": { origin: behind.origin } }, redirects: { "/old": { url: "/new" } }, routes: { "/app/**": "index.html" }), "/.htpasswd" => "u:#{SHA}\n")
    ["/", "/index.html", "/old", "/api/x", "/app/x", "/missing"].each { |path| assert_status 401, get(path, to: own), path }
    assert_status 401, post("/api/x", "body", to: own)
    assert_empty behind.requests
    assert_status 404, get("/missing", to: own, headers: basic("u", "password"))
  end

  always "redirects to https and to the canonical host before it requires a password" do |extra|
    own = served(extra.merge(https_only: true, canonical_host: "www.example.test", basic_auth: true, basic_auth_htpasswd_path: ".htpasswd"), "/.htpasswd" => "u:#{SHA}\n")
    assert_status 301, get("/", to: own)
    assert_status 301, get("/", to: own, headers: https)
    assert_status 401, get("/", to: own, headers: https("Host" => "www.example.test"))
    assert_status 200, get("/", to: own, headers: https("Host" => "www.example.test").merge(basic("u", "password")))
  end

  always "uses user and password of the environment, even with an explicit false" do |extra|
    own = served(extra.merge(basic_auth: false), env: { "BASIC_AUTH_USERNAME" => "env", "BASIC_AUTH_PASSWORD" => hashed(:apr1, "from env") })
    assert_status 401, get("/", to: own)
    assert_page "home", "/", own, headers: basic("env", "from env")
  end

  always "adds the environment's user to those of the file" do |extra|
    own = served(extra.merge(basic_auth: true, basic_auth_htpasswd_path: ".htpasswd"), "/.htpasswd" => "u:#{SHA}", env: { "BASIC_AUTH_USERNAME" => "env", "BASIC_AUTH_PASSWORD" => hashed(:apr1, "from env") })
    assert_page "home", "/", own, headers: basic("env", "from env")
    assert_page "home", "/", own, headers: basic("u", "password")
  end

  always "finds .htpasswd in the site's directory" do |extra|
    own = served(extra.merge(basic_auth: true), "/.htpasswd" => "u:#{SHA}\n")
    assert_status 401, get("/", to: own)
    assert_page "home", "/", own, headers: basic("u", "password")
  end

  it "checks passwords on many connections concurrently" do
    own = served({ basic_auth: true }, "/.htpasswd" => "u:#{hashed(:bcrypt, 'good')}\n")
    threads = Array.new(8) { |i| Thread.new { Array.new(5) { get("/", to: own, headers: basic("u", i.even? ? "good" : "bad#{i}")).status } } }
    threads.each_with_index { |thread, i| assert_equal [i.even? ? 200 : 401], thread.value.uniq }
  end

  # --- encoding, gzip, and the rest

  always "sends the charset of HTML and plain text, UTF-8 by default, and none for JSON" do |extra|
    files = { "a.txt" => "a", "a.json" => "{}", "a.png" => "png" }
    own = served(extra, files)
    { "/" => %r{\Atext/html; ?charset=utf-8\z}i, "/a.txt" => %r{\Atext/plain; ?charset=utf-8\z}i, "/a.json" => %r{\Aapplication/json\z}, "/a.png" => %r{\Aimage/png\z} }.each { |path, type| assert_match type, get(path, to: own)["content-type"] }
    own = served(extra.merge(encoding: "ISO-8859-1"), files)
    assert_match(%r{\Atext/html; ?charset=iso-8859-1\z}i, get("/", to: own)["content-type"])
    assert_equal "application/json", get("/a.json", to: own)["content-type"]
  end

  it "uses nginx's types with compat" do
    own = served(COMPAT, "a.js" => "1", "a.css" => "a{}", "a.xml" => "<a/>")
    assert_match(%r{\Aapplication/javascript; ?charset=utf-8\z}i, get("/a.js", to: own)["content-type"])
    assert_equal "text/css", get("/a.css", to: own)["content-type"]
    assert_match(%r{\Atext/xml; ?charset=utf-8\z}i, get("/a.xml", to: own)["content-type"])
  end

  always "compresses text from 512 bytes on with gzip and sends Vary" do |extra|
    own = served(extra, "a.css" => "a{}\n" * 400, "small.css" => "a{}\n" * 10, "a.png" => "\0" * 5000, "a.html" => "<p>" * 400, "a.json" => "[0,\n" * 400)
    headers = { "Accept-Encoding" => "gzip" }
    { "/a.css" => "a{}\n" * 400, "/a.html" => "<p>" * 400, "/a.json" => "[0,\n" * 400 }.each do |path, content|
      response = get(path, to: own, headers: headers)
      assert_equal "gzip", response["content-encoding"], path
      assert_equal content, Codings.decode(response)
      assert_match(/accept-encoding/i, response["vary"])
      assert_match(/accept-encoding/i, get(path, to: own)["vary"])
    end
    %w[/small.css /a.png].each { |path| assert_nil get(path, to: own, headers: headers)["content-encoding"], path }
  end

  it "uses only gzip, and no side-cars, with compat" do
    own = served(COMPAT, "a.css" => "a{}\n" * 400, "a.css.gz" => Codings.gzip("side-car"), "a.css.br" => "br", "a.svg" => "<svg>" * 400)
    assert_nil get("/a.css", to: own, headers: { "Accept-Encoding" => "br, zstd" })["content-encoding"]
    assert_equal "a{}\n" * 400, Codings.decode(get("/a.css", to: own, headers: { "Accept-Encoding" => "gzip, br" }))
    assert_nil get("/a.svg", to: own, headers: { "Accept-Encoding" => "gzip" })["content-encoding"]
  end

  it "listens on the port of the file unless another is given" do
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    own = served({ port: port }, binds: [], args: ["-o", "127.0.0.1"])
    assert_equal port, own.port
    own.finish
    before_variable = served({ port: port }, binds: [], args: ["-o", "127.0.0.1"], env: { "PORT" => "1" })
    assert_equal port, before_variable.port
    assert_page "home", "/", own
    refute_equal port, served({ port: port }).port
  end

  it "explains each request in the error log at the debug level" do
    own = served({ redirects: { "/old": { url: "/new" } } }, env: { "STATIC_DEBUG" => "1" })
    get("/old", to: own)
    wait_until("the explanation") { own.stderr.include?("debug: GET /old") && own.stderr.include?("response: 301 to /new") }
  end

  it "logs requests by default" do
    own = served(logging: { access: true })
    get("/wanted-line", to: own)
    wait_until("the log line") { (own.stdout + own.stderr).include?("/wanted-line") }
    quiet = served(logging: { access: false })
    get("/unwanted-line", to: quiet)
    sleep 0.5
    refute_includes quiet.stdout + quiet.stderr, "/unwanted-line"
  end

  # --- order, all together

  always "keeps the buildpack's order: https, host, password, files, clean URLs, proxies, redirects, routes, 404" do |extra|
    behind = backend
    rules = { https_only: true, canonical_host: "www.example.test", basic_auth: true, clean_urls: true, error_page: "error.html", proxies: { "/api": { origin: behind.origin } },
              redirects: { "/old": { url: "https://new.test/" }, "/api/old": { url: "https://new.test/" }, "/page": { url: "https://new.test/" } }, routes: { "/assets/*": "/assets/", "/app/**": "index.html", "/old": "index.html" },
              headers: { "/**": { "X-Every" => "1" } } }
    own = served(extra.merge(rules), "error.html" => "sorry", "page.html" => "page", "api/file.txt" => "file", "/.htpasswd" => "u:#{SHA}\n")
    assert_equal "https://#{'www.' if extra.empty?}example.test/x", get("/x", to: own)["location"]
    assert_equal "https://www.example.test/x", get("/x", to: own, headers: https)["location"]
    assert_status 401, get("/x", to: own, headers: https("Host" => "www.example.test"))
    headers = https("Host" => "www.example.test").merge(basic("u", "password"))
    assert_page "page", "/page", own, headers: headers
    assert_page "file", "/api/file.txt", own, headers: headers
    assert_equal "/old", get("/api/old", to: own, headers: headers).json["target"]
    assert_equal "https://new.test/", get("/old", to: own, headers: headers)["location"]
    assert_page "home", "/app/x/y", own, headers: headers
    %w[/assets/x.js /missing /missing.html /app/missing.html].each do |path|
      response = get(path, to: own, headers: headers)
      assert_equal [404, "sorry", "1"], [response.status, response.body, response["x-every"]], path
    end
  end
end
