# frozen_string_literal: true

# The keys of static.json that the buildpack does not have. All are off by default.

require "support/site_case"

class SiteKeysTest < SiteCase
  parallel!

  def setup
    firebrick_only
  end

  # --- headers

  # --- variables of the environment

  it "substitutes variables and their defaults in free text" do
    behind = backend
    rules = { root: "${SITE_ROOT:-other}", canonical_host: "${CANON:-example.test}", headers: { "/**": { "X-Release" => "${RELEASE}", "X-Stage" => "${STAGE:-local}", "X-Empty" => "a${EMPTY:-}b", "X-Literal" => "$${RELEASE}" } },
              redirects: { "/old": { url: "https://${NEW_HOST:-new.test}/x" } }, proxies: { "/api": { origin: "${API:-#{behind.origin}}" } } }
    own = site(rules, files: { "other/index.html" => "other root" }, env: { "RELEASE" => "v7" })
    response = get("/", to: own)
    assert_equal "other root", response.body
    assert_equal ["v7", "local", "ab", "${RELEASE}"], [response["x-release"], response["x-stage"], response["x-empty"], response["x-literal"]]
    assert_equal "https://new.test/x", get("/old", to: own)["location"]
    assert_equal "/x", get("/api/x", to: own).json["target"]
  end

  it "refuses to start with a line break in a variable of a header or a redirect" do
    rules = { headers: { "/**": { "X-Release" => "${RELEASE}" } }, redirects: { "/old": { url: "https://new.test/${RELEASE}" } } }
    message = refused_start(rules, { "RELEASE" => "a\r\nX-Injected: 1" })
    assert_match(/headers.*control character/, message)
    assert_match(/redirects.*control character/, message)
  end

  # --- redirects

  it "lets no request choose the host or add a header of a redirect" do
    own = served(redirects: { "/x/**": { url: "/$1" }, "/y/**": { url: "$1" }, "/q": { url: "/new?$args" }, "/h": { url: "https://new.test/$http_x_name" }, "/a": { url: "/$arg_to" } })
    { "/x//evil.test" => {}, "/x/%2Fevil.test" => {}, "/x/%5Cevil.test" => {}, "/y//evil.test" => {}, "/x/%0d%0aX-Injected:1" => {}, "/q?%0d%0aX-Injected:1" => {}, "/a?to=%0d%0aX-Injected:1" => {}, "/a?to=/evil.test" => {}, "/a?to=%2Fevil.test" => {},
      "/h" => { "X-Name" => "a\tb" } }.each do |path, headers|
      response = get(path, to: own, headers: headers)
      assert_empty response.all("x-injected"), path
      location = response["location"] or next
      refute_match(%r{\A[/\\]{2}}, location, path)
      assert_match(/\A[\x21-\x7e]+\z/, location, path)
      refute_match(%r{\A[a-z]+://(?!new\.test/)}, location, path)
    end
  end

  # --- trailing slashes

  it "removes slashes with trailing_slash never" do
    own = served({ clean_urls: true, trailing_slash: "never" }, "foo.html" => "foo", "bar/index.html" => "bar")
    assert_page "foo", "/foo", own
    assert_page "bar", "/bar", own
    assert_page "home", "/", own
    assert_redirect "/foo", get("/foo/", to: own)
    assert_redirect "/bar?a=1", get("/bar/?a=1", to: own)
    assert_missing "/nothing/", own
  end

  it "does not redirect to other hosts by double slashes" do
    %w[never always].each do |policy|
      own = served({ clean_urls: true, trailing_slash: policy }, "evil.test/index.html" => "x", "evil.html" => "x")
      %w[//evil.test //evil.test/ ///evil.test/ //evil //evil/ /%2fevil/ /%5cevil.test/].each do |path|
        location = get(path, to: own)["location"] and refute_match(%r{\A[/\\]{2}}, location, path)
      end
    end
  end

  # --- directories

  it "lists a directory without an index only if configured" do
    files = { "dir/b.txt" => "b", "dir/a <&>\".txt" => "a", "dir/javascript:alert(1)" => "x", "dir/.hidden" => "h", "dir/sub/x" => "x" }
    listing = get("/dir/", to: served({ directory_listing: true }, files))
    assert_status 200, listing
    assert_match(%r{\Atext/html}, listing["content-type"])
    ["b.txt", "a &lt;&amp;&gt;", "sub/"].each { |text| assert_includes listing.body, text }
    ["a <", ".hidden", "href=\"javascript:"].each { |text| refute_includes listing.body, text }
    assert_missing "/dir/", served({ directory_listing: false }, files)
    assert_missing "/dir/", served({}, files)
  end

  # --- caching, compression

  it "makes fingerprinted assets immutable if configured" do
    names = %w[app-3f2a9c81.js app.3f2a9c81d0.css assets/index-BxY3_k2Z.js assets/index-DiwrgTda.js application-5b5e7c9d2f1a4b3c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c.css]
    plain = %w[app.js index.html jquery-3.7.1.js photo-2020.jpg]
    files = (names + plain).to_h { |name| [name, "x"] }
    own = served({ fingerprinted_assets: true, headers: { "/app.js": { "X-A" => "1" } } }, files)
    names.each { |name| assert_equal "public, max-age=31536000, immutable", get("/#{name}", to: own)["cache-control"], name }
    plain.each { |name| refute_match(/immutable/, get("/#{name}", to: own)["cache-control"].to_s, name) }
    off = served({}, files)
    names.each { |name| refute_match(/immutable/, get("/#{name}", to: off)["cache-control"].to_s, name) }
    ruled = served({ fingerprinted_assets: true, headers: { "/**": { "Cache-Control" => "no-store" } } }, files)
    assert_equal "no-store", get("/#{names.first}", to: ruled)["cache-control"]
  end

  it "does not compress if disabled, and still sends side-cars" do
    own = served({ compress: false }, "a.css" => "a{}\n" * 400, "b.css" => "b{}\n" * 400, "b.css.gz" => Codings.gzip("side-car"))
    assert_nil get("/a.css", to: own, headers: { "Accept-Encoding" => "gzip, br" })["content-encoding"]
    assert_equal "side-car", Codings.decode(get("/b.css", to: own, headers: { "Accept-Encoding" => "gzip" }))
  end

  it "does not look for side-cars if disabled, and still compresses" do
    own = served({ precompressed: false }, "b.css" => "b{}\n" * 400, "b.css.gz" => Codings.gzip("side-car"))
    assert_equal "b{}\n" * 400, Codings.decode(get("/b.css", to: own, headers: { "Accept-Encoding" => "gzip" }))
  end

  # --- proxies

  it "accepts an origin's options in an object" do
    behind = backend
    own = served(proxies: { "/api": { origin: [behind.origin], balance: "round_robin", connect_timeout: "9s", read_timeout: "9500ms", send_timeout: 9, retries: 0, max_idle: 2, host: "client", forwarded: false, websocket: false, tls_verify: true } })
    assert_equal "/x", get("/api/x", to: own).json["target"]
    req = behind.requests.last
    assert_equal "example.test", req["host"]
    assert_nil req["x-forwarded-for"]
  end

  # --- compat disables all of these

  it "ignores its own keys with compat" do
    rules = { compat: "heroku", header_rules: "merge", directory_listing: true, trailing_slash: "never", fingerprinted_assets: true, index: "main.html", headers: { "/**": { "X-A" => "1" }, "/page.html": { "X-C" => "${RELEASE:-x}" } } }
    own = served(rules, "page.html" => "page", "dir/a.txt" => "a", "bar/index.html" => "bar", "app-3f2a9c81.js" => "x")
    page = get("/page.html", to: own)
    assert_equal [nil, "${RELEASE:-x}"], [page["x-a"], page["x-c"]]
    assert_status 403, get("/dir/", to: own)
    assert_page "bar", "/bar/", own
    assert_nil get("/app-3f2a9c81.js", to: own)["cache-control"]
  end

  # --- without static.json

  it "serves a directory without static.json as GitHub Pages does" do
    own = site(nil, files: { "index.html" => "home", "about.html" => "about", "404.html" => "not here", "dir/index.html" => "dir" })
    assert_page "home", "/", own
    assert_page "about", "/about", own
    assert_page "about", "/about.html", own
    assert_redirect "/dir/", get("/dir", to: own)
    response = get("/missing", to: own)
    assert_equal [404, "not here"], [response.status, response.body]
  end

  # --- errors

  def refused_start(rules, env = {})
    own = SiteServer.new(rules: rules, env: env, files: { "public_html/index.html" => "home" }, exit_code: 1)
    @own_servers << own.launch
    assert_equal 1, own.wait_exit
    own.stderr
  end

  it "refuses to start with a mistake in static.json, and shows where" do
    message = refused_start("{\n  \"clean_urls\": \"yes\"\n}")
    assert_match(/static\.json:2:\d+.*clean_urls.*true or false/m, message)
    assert_match(/^\s*(\d+ ?\|)?\s*\^/, message, "a caret below the line")
    refute_match(/panicked/, message)
  end
end
