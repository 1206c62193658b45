# frozen_string_literal: true

# Commands in a directory with a static site, and changes of static.json while it is served.

require "support/site_case"

class SiteReloadTest < SiteCase
  parallel!

  def setup
    firebrick_only
  end

  def eventually(path, on, within: 5, &block)
    wait_until("GET #{path} to change", within: within) { block.call(get(path, to: on)) }
  end

  it "follows static.json when it changes" do
    own = served({ headers: { "/**": { "X-A" => "1" } } }, "page.html" => "page")
    assert_equal "1", get("/", to: own)["x-a"]
    own.rules = { clean_urls: true, headers: { "/**": { "X-A" => "2" } } }
    eventually("/", own) { |response| response["x-a"] == "2" }
    assert_page "page", "/page", own
  end

  it "follows static.json when it is rewritten in place" do
    own = served(headers: { "/**": { "X-A" => "1" } })
    File.write(own.path("static.json"), JSON.generate(headers: { "/**": { "X-A" => "2" } }))
    eventually("/", own) { |response| response["x-a"] == "2" }
  end

  it "keeps the old rules while static.json is invalid, and logs where" do
    own = served(headers: { "/**": { "X-A" => "1" } })
    own.rules = "{\n  \"headers\": {,\n}"
    wait_until("a word about it", within: 5) { own.stderr.match?(/static\.json:2:\d+/) }
    assert_equal "1", get("/", to: own)["x-a"]
    own.rules = { headers: { "/**": { "X-A" => "3" } } }
    eventually("/", own) { |response| response["x-a"] == "3" }
  end

  it "keeps the old rules when static.json is removed, or applies the defaults" do
    own = served(headers: { "/**": { "X-A" => "1" } })
    File.delete(own.path("static.json"))
    sleep 1
    assert_page "home", "/", own
    own.rules = { headers: { "/**": { "X-A" => "2" } } }
    eventually("/", own) { |response| response["x-a"] == "2" }
  end

  it "follows a new root" do
    own = site({ root: "one" }, files: { "one/index.html" => "one", "two/index.html" => "two" })
    assert_page "one", "/", own
    own.rules = { root: "two" }
    eventually("/", own) { |response| response.body == "two" }
  end

  it "follows a root that is a symbolic link to a new release" do
    own = site({ root: "current" }, files: { "one/index.html" => "one", "two/index.html" => "two" }, prepare: ->(dir) { File.symlink("one", File.join(dir, "current")) })
    assert_page "one", "/", own
    File.symlink("two", own.path("next"))
    File.rename(own.path("next"), own.path("current"))
    eventually("/", own) { |response| response.body == "two" }
  end

  it "follows new passwords" do
    sha = ->(word) { "u:{SHA}#{[Digest::SHA1.digest(word)].pack('m0')}\n" }
    authorization = ->(word) { { "Authorization" => "Basic #{["u:#{word}"].pack('m0')}" } }
    own = served({ basic_auth: true }, "/.htpasswd" => sha["old"])
    assert_page "home", "/", own, headers: authorization["old"]
    own.write(".htpasswd", sha["new"])
    wait_until("the new password", within: 5) { get("/", to: own, headers: authorization["new"]).status == 200 }
    assert_status 401, get("/", to: own, headers: authorization["old"])
  end

  it "follows new origins, and completes requests in progress" do
    first = backend { |conn, _| sleep(1.5) && conn.respond("first") }
    second = backend { |conn, _| conn.respond("second") }
    own = served(proxies: { "/api": { origin: first.origin } })
    waiting = connect(own).write(request("GET", "/api/x"))
    wait_until("the first origin") { first.requests.any? }
    own.rules = { proxies: { "/api": { origin: second.origin } } }
    eventually("/api/x", own, within: 8) { |response| response.body == "second" }
    assert_equal "first", waiting.read_response.body
  end

  it "does not follow with --no-watch" do
    own = served({ headers: { "/**": { "X-A" => "1" } } }, args: ["--no-watch"])
    own.rules = { headers: { "/**": { "X-A" => "2" } } }
    sleep 2.5
    assert_equal "1", get("/", to: own)["x-a"]
  end

  it "loses no request while rules change" do
    own = served(headers: { "/**": { "X-A" => "0" } })
    stop = false
    asking = Thread.new { [].tap { |seen| seen << get("/", to: own).then { |response| [response.status, response.body] } until stop } }
    10.times { |i| sleep(0.1) && own.rules = { headers: { "/**": { "X-A" => i.to_s } } } }
    stop = true
    assert_equal [[200, "home"]], asking.value.uniq
  end
end

class SiteCommandsTest < SiteCase
  parallel!

  def setup
    firebrick_only
    @folder = File.realpath(Dir.mktmpdir("firebrick-site"))
  end

  def teardown
    FileUtils.remove_entry(@folder) if @folder
  end

  def write(name, content)
    FileUtils.mkdir_p(File.dirname(File.join(@folder, name)))
    File.write(File.join(@folder, name), content.is_a?(Hash) ? JSON.pretty_generate(content) : content)
  end

  def firebrick(*args, env: {})
    clean = %w[PORT BASIC_AUTH_USERNAME BASIC_AUTH_PASSWORD].to_h { |key| [key, nil] }
    out, err, status = Open3.capture3(clean.merge("XDG_RUNTIME_DIR" => @folder, **Server.ruby_files, **env), Server.binary, *args, chdir: @folder)
    refute_match(/panicked/, err)
    [out, err, status.exitstatus]
  end

  # The output of `firebrick explain`.
  def explain(*args, **options)
    out, err, code = firebrick("explain", *args, **options)
    assert_equal 0, code, err
    out
  end

  # --- serve

  %w[_site public_html dist build].each do |name|
    it "serves #{name}/ if it exists" do
      assert_page "home", "/", site(nil, files: { "#{name}/index.html" => "home", "notes.txt" => "notes" })
    end
  end

  it "serves a directory with an index.html" do
    assert_page "home", "/", site(nil, files: { "index.html" => "home" })
  end

  it "prefers static.json to everything else" do
    own = site({ root: "mine" }, files: { "mine/index.html" => "mine", "_site/index.html" => "jekyll", "index.html" => "index" })
    assert_page "mine", "/", own
  end

  it "serves the given directory" do
    write("deep/_site/index.html", "below")
    assert_page "below", "/", site(nil, directory: File.join(@folder, "deep/_site"))
  end

  it "reports that there is nothing to serve, and what it looked for" do
    own = SiteServer.new(directory: @folder, exit_code: :any)
    @own_servers << own.launch
    assert_equal 1, own.wait_exit(within: 5)
    ["config.ru", "static.json", "index.html"].each { |name| assert_includes own.stderr, name }
  end

  it "needs no Ruby for a site" do
    write("_site/index.html", "home")
    own = site(nil, directory: @folder, env: { "PATH" => "/nowhere" })
    assert_page "home", "/", own
    assert_equal 1, own.processes.size, own.processes.map { |one| Processes.command(one.pid) }.inspect
  end

  it "shows in its banner what it serves" do
    own = site({ root: "site" }, files: { "site/index.html" => "home" })
    assert_match(/\bsite\b/, own.stdout)
    assert_match(/static\.json/, own.stdout)
  end

  # --- explain

  it "explains a file" do
    write("static.json", headers: { "/**" => { "X-A" => "1" } })
    write("public_html/page.html", "page")
    out = explain("/page.html")
    ["page.html", "X-A", "static.json"].each { |word| assert_includes out, word }
    assert_includes explain("/page.html", "."), "page.html"
  end

  it "normalizes encodings, queries and dots like the server" do
    write("static.json", {})
    write("public_html/a b.txt", "x")
    assert_match(/200/, explain("/a%20b.txt?x=1"))
    assert_match(/200/, explain("/dir/../a%20b.txt"))
    assert_match(/404/, explain("/.env"))
  end

  it "refuses to explain an invalid path" do
    write("public_html/index.html", "home")
    _, err, code = firebrick("explain")
    refute_equal 0, code
    refute_empty err
    _, err, code = firebrick("explain", "/x", "nowhere")
    refute_equal 0, code
    assert_includes err, "nowhere"
  end

  it "agrees with the server's responses" do
    rules = { clean_urls: true, redirects: { "/old" => { "url" => "/new" } }, routes: { "/app/**" => "index.html", "/assets/*" => "/assets/" }, error_page: "404.html" }
    files = { "index.html" => "home", "about.html" => "about", "dir/index.html" => "dir", "404.html" => "no", "data.json" => "{}" }
    own = served(rules, files)
    ["/", "/about", "/about.html", "/dir", "/dir/", "/old", "/app/x", "/assets/x", "/missing", "/missing.html", "/data.json", "/.env"].each do |path|
      out, err, code = own.command_line("explain", path)
      assert_equal 0, code, err
      assert_includes out, get(path, to: own).status.to_s, path
    end
  end

  # --- check

  # The output of `firebrick check`, and its exit code.
  def check
    out, err, code = firebrick("check")
    [out + err, code]
  end

  it "accepts a valid site" do
    write("static.json", "clean_urls" => true, "error_page" => "404.html", "routes" => { "/app/**" => "index.html" })
    write("public_html/index.html", "home")
    write("public_html/404.html", "no")
    output, code = check
    assert_equal 0, code, output
    refute_match(/static\.json:\d/, output)
  end

  it "reports what has no effect, with its line" do
    write("static.json", "clean_url" => true, "error_page" => "nowhere.html", "routes" => { "/**" => "index.html", "/app/**" => "index.html" })
    write("public_html/index.html", "home")
    output, = check
    [/static\.json:2:\d+: unknown key "clean_url"; did you mean "clean_urls"/, /static\.json:3:\d+: .*nowhere\.html/, %r{static\.json:6:\d+: .*/app/\*\*}].each { |line| assert_match line, output }
  end

  it "exits with 1 when static.json is invalid" do
    write("static.json", "{\n  \"root\": \n}")
    write("public_html/index.html", "home")
    output, code = check
    assert_equal 1, code
    assert_match(/static\.json:3:1/, output)
    assert_includes output, "^"
  end

  it "refuses canonical hosts of the settings and of static.json that redirect to each other" do
    write("public_html/index.html", "home")
    write("static.json", "{\n  \"canonical_host\": \"www.example.test\"\n}")
    write("firebrick.toml", %(canonical_host = "example.test"\n))
    sentence = /static\.json:2: canonical_host "www\.example\.test" and canonical_host "example\.test" of the settings \(firebrick\.toml or --canonical-host\)/
    output, code = check
    assert_equal 1, code, output
    assert_match sentence, output
    out, err, code = firebrick("serve", "-b", "tcp://127.0.0.1:0")
    assert_equal 1, code, out
    assert_match sentence, err
    [%(canonical_host = "WWW.Example.test"\n), %(canonical_host = "example.test"\nhttp_paths = ["/*"]\n), ""].each do |text|
      write("firebrick.toml", text)
      output, code = check
      assert_equal 0, code, "#{text}#{output}"
    end
  end

  it "minds only the site that the canonical host of the settings reaches" do
    write("public_html/index.html", "home")
    write("static.json", { "canonical_host" => "www.example.test" })
    write("other/public_html/index.html", "other")
    write("other/static.json", { "canonical_host" => "blog.test" })
    settings = ->(host) { %(canonical_host = "#{host}"\n[sites]\n"*.blog.test" = "other"\n"blog.test" = "other"\n) }
    write("firebrick.toml", settings.call("www.example.test"))
    output, code = check
    assert_equal 0, code, output
    write("firebrick.toml", settings.call("www.blog.test"))
    output, code = check
    assert_equal 1, code, output
    assert_match(/canonical_host "blog\.test" and canonical_host "www\.blog\.test"/, output)
  end
end
