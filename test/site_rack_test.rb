# frozen_string_literal: true

# static.json in front of a Rack app: https and host redirects, files and rules first, then the app. And several sites in one server, by Host.

require "support/site_case"

class SiteRackTest < SiteCase
  parallel!

  APP = <<~'RUBY'
    run lambda { |env|
      status = env["PATH_INFO"].start_with?("/gone") ? 404 : 200
      [status, { "content-type" => "text/plain" }, ["app #{env["REQUEST_METHOD"]} #{env["PATH_INFO"]}?#{env["QUERY_STRING"]} #{env["rack.input"]&.read}"]]
    }
  RUBY

  def setup
    firebrick_only
  end

  def fronted(rules, files = {}, **options)
    served({ root: "public_html/" }.merge(rules), files, app: APP, **options)
  end

  it "serves files itself and passes the rest to the app" do
    own = fronted({}, "style.css" => "a{}", "dir/index.html" => "dir")
    assert_page "a{}", "/style.css", own
    assert_page "dir", "/dir/", own
    ["/x?a=1", "/style.csss?", "/deep/er?", "/other/?"].each { |path| assert_equal "app GET #{path} ", get(path, to: own).body, path }
  end

  it "passes methods that files do not support to the app" do
    own = fronted({}, "style.css" => "a{}")
    %w[POST PUT PATCH DELETE OPTIONS].each do |method|
      assert_equal "app #{method} /style.css? body", ask(request(method, "/style.css", {}, "body"), to: own).body
      assert_equal "app #{method} /x? body", ask(request(method, "/x", {}, "body"), to: own).body
    end
  end

  it "leaves the app's own 404 unchanged" do
    own = fronted({ error_page: "404.html" }, "404.html" => "the site's")
    response = get("/gone", to: own)
    assert_equal [404, "app GET /gone? "], [response.status, response.body]
  end

  it "passes unusual paths to the app" do
    own = fronted({ clean_urls: true }, "about.html" => "about")
    assert_page "about", "/about", own
    ["/missing", "/users/1", "/a.json", "/assets/x.js"].each { |path| assert_equal "app GET #{path}? ", get(path, to: own).body, path }
  end

  it "redirects, proxies and routes before the app" do
    behind = backend
    own = fronted({ redirects: { "/old" => { url: "/new" } }, proxies: { "/api" => { origin: behind.origin } }, routes: { "/spa/**" => "index.html" } })
    assert_redirect "/new", get("/old", to: own)
    assert_equal "/x", get("/api/x", to: own).json["target"]
    assert_equal "POST", post("/api/x", "body", to: own).json["method"]
    assert_page "home", "/spa/deep", own
    assert_equal "app GET /new? ", get("/new", to: own).body
  end

  it "adds headers by rule to the app's responses, too" do
    own = fronted({ headers: { "/**" => { "X-Every" => "1" }, "/app/*" => { "X-App" => "1" } } })
    assert_equal "1", get("/x", to: own)["x-every"]
    special = get("/app/x", to: own)
    assert_equal ["1", nil], [special["x-app"], special["x-every"]]
    assert_equal "1", get("/gone", to: own)["x-every"]
  end

  it "applies https and host redirects before the app" do
    own = fronted({ https_only: true })
    assert_status 301, post("/x", "body", to: own)
    assert_equal "app GET /x? ", get("/x", to: own, headers: { "X-Forwarded-Proto" => "https" }).body
  end

  it "requires passwords before the app" do
    own = fronted({ basic_auth: true }, "/.htpasswd" => "u:{SHA}#{[Digest::SHA1.digest('word')].pack('m0')}\n")
    assert_status 401, post("/x", "body", to: own)
    assert_equal "app GET /x? ", get("/x", to: own, headers: { "Authorization" => "Basic #{['u:word'].pack('m0')}" }).body
  end

  it "follows static.json while the app keeps running" do
    own = fronted({ redirects: { "/old" => { url: "/one" } } })
    own.rules = { root: "public_html/", redirects: { "/old" => { url: "/two" } } }
    wait_until("the new redirect", within: 5) { get("/old", to: own)["location"] == "/two" }
    assert_equal "app GET /x? ", get("/x", to: own).body
  end

  it "serves files while the app is busy" do
    app = 'run ->(_) { sleep 0.01 until File.exist?("gate.log"); [200, {}, ["app"]] }'
    own = served({ root: "public_html/" }, { "a.css" => "a{}" }, app: app)
    5.times { connect(own).write(request("GET", "/slow")) }
    5.times { assert_page "a{}", "/a.css", own }
    File.write(own.path("gate.log"), "")
  end
end

class SitesByHostTest < SiteCase
  parallel!

  def setup
    firebrick_only
  end

  FILES = { "one/public_html/index.html" => "one", "one/static.json" => JSON.generate(headers: { "/**" => { "X-Site" => "1" } }), "two/index.html" => "two", "two/about.html" => "about two",
            "_site/index.html" => "default" }.freeze

  def by_host(sites, **options)
    site(nil, files: FILES, settings: sites, **options)
  end

  def home(own, host)
    get("/", to: own, headers: { "Host" => host }).body
  end

  # TOML requires quotes around keys with dots.
  def quoted(sites)
    "[sites]\n#{sites.map { |host, dir| "#{host.dump} = #{dir.dump}\n" }.join}"
  end

  it "chooses a site by Host, and the directory's own for others" do
    own = by_host(quoted("one.test" => "one", "two.test" => "two"))
    assert_equal %w[one two default], [home(own, "one.test"), home(own, "two.test"), home(own, "other.test")]
    assert_equal %w[one one], [home(own, "ONE.test"), home(own, "one.test:8080")]
    assert_equal "1", get("/", to: own, headers: { "Host" => "one.test" })["x-site"]
    assert_nil get("/", to: own, headers: { "Host" => "two.test" })["x-site"]
    assert_equal "about two", get("/about", to: own, headers: { "Host" => "two.test" }).body
    assert_status 404, get("/about", to: own, headers: { "Host" => "one.test" })
  end

  it "reloads each site's own static.json" do
    own = by_host(quoted("one.test" => "one", "two.test" => "two"))
    own.write("one/static.json", JSON.generate(headers: { "/**" => { "X-Site" => "changed" } }))
    wait_until("the change", within: 5) { get("/", to: own, headers: { "Host" => "one.test" })["x-site"] == "changed" }
    assert_nil get("/", to: own, headers: { "Host" => "two.test" })["x-site"]
  end

  it "refuses to start with a site whose directory is missing, and names it" do
    own = SiteServer.new(files: FILES.merge("firebrick.toml" => quoted("one.test" => "nowhere")), exit_code: :any)
    @own_servers << own.launch
    assert_equal 2, own.wait_exit
    assert_logged(/firebrick\.toml:2.*nowhere|nowhere.*firebrick\.toml:2/m, on: own)
  end
end
