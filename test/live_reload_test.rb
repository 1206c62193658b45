# frozen_string_literal: true

# Sites while they are written: `serve --browse --spa --live-reload`.

require "json"
require "support/browser"
require "support/case"
require "support/event_client"
require "time"

class LiveReloadTest < Case
  in_turn!

  STYLE = "body { color: rgb(1, 2, 3) }"
  PAGE = <<~HTML
    <!doctype html>
    <title>One</title>
    <link rel="stylesheet" href="/style.css">
    <body><h1 id="head">Hello</h1><p>First</p><p>Second</p><input id="name"><div style="height: 3000px"></div><script src="/page.js"></script></body>
  HTML
  FILES = { "index.html" => PAGE, "style.css" => STYLE, "page.js" => "window.runs = (window.runs || 0) + 1; document.title += '!'", "a/b.html" => "<p>b",
            "a/c.txt" => "text" }.freeze

  def setup
    firebrick_only
  end

  def site(*flags, files: FILES, **options) = start(files: files, args: flags, leaves: %w[new.html later.html .hidden], **options)

  def write(own, name, text) = File.write(own.path(name), text)

  # The paths of the changes that a client has heard of.
  def changes(own)
    client = closed_at_end(EventClient.new(own, "/.firebrick/live"))
    # The first look at the folder.
    sleep 0.5
    yield
    client.wait { client.events.find { |event| event.type == "message" } }
    client.events.flat_map { |event| JSON.parse(event.data) }
  end

  it "serves sites as they are without these flags" do
    own = site
    assert_equal PAGE, get("/", to: own).body
    assert_status 404, get("/.firebrick/live.js", to: own)
    assert_status 404, get("/a/", to: own)
    assert_status 404, get("/users/7", to: own)
  end

  it "lists folders with --browse" do
    own = site("--browse", files: FILES.merge(".secret" => "x", "static.json" => "{}"))
    listing = get("/a/", to: own)
    assert_status 200, listing
    assert_includes listing.body, 'href="./b.html"'
    refute_includes get("/", to: own).body, "secret"
    assert_equal PAGE, get("/", to: own).body, "an index comes first"
  end

  it "sends the index for paths without a file with site.spa, and 404 for files that are missing" do
    own = site(settings: { site: { spa: true } }, files: FILES.merge("static.json" => JSON.generate(redirects: { "/old" => { url: "/a/c.txt" } })))
    ["/users/7", "/users/7/", "/a", "/deep/er/path?x=1"].each { |path| assert_equal PAGE, get(path, to: own).body, path }
    assert_equal "text", get("/a/c.txt", to: own).body
    assert_status 301, get("/old", to: own)
    ["/app.js", "/a/missing.css", "/.env", "/.git/config", "/users/.x/y"].each { |path| assert_status 404, get(path, to: own) }
    out, = own.command_line("explain", "/users/7", own.dir)
    assert_match(%r{the file /index\.html, by site\.spa}, out)
    assert_equal PAGE, get("/users/7", to: site("--spa")).body
  end

  it "gives pages a script, whole and without validators, and leaves all else as it is" do
    own = site("--live-reload")
    page = get("/", to: own, headers: { "Accept-Encoding" => "gzip", "Range" => "bytes=0-9", "If-Modified-Since" => Time.now.httpdate })
    assert_status 200, page
    assert_equal PAGE.sub("</body>", '<script src="/.firebrick/live.js"></script></body>'), page.body
    assert_equal "no-store", page["cache-control"]
    %w[etag last-modified content-encoding].each { |name| assert_nil page[name] }
    assert_equal '<p>b<script src="/.firebrick/live.js"></script>', get("/a/b.html", to: own).body
    style = get("/style.css", to: own)
    assert_equal STYLE, style.body
    refute_nil style["etag"]
    missing = get("/missing", to: own)
    assert_status 404, missing
    assert_includes missing.body, "live.js", "it becomes a page when its file comes"
    script = get("/.firebrick/live.js", to: own)
    assert_equal "text/javascript; charset=utf-8", script["content-type"]
    assert_includes script.body, "EventSource"
    assert_equal "200", connect(own).write(request("HEAD", "/")).read_response("HEAD").status.to_s
    assert_status 404, post("/.firebrick/live", "x", to: own), "a name that begins with a dot is none of the site"
  end

  it "tells which files have changed, have come or have gone, and not those that are hidden" do
    own = site("--live-reload")
    heard = changes(own) do
      write(own, "style.css", "body {}")
      write(own, "new.html", "<p>new")
      write(own, ".hidden", "x")
      File.delete(own.path("a/c.txt"))
    end
    assert_equal %w[/a/c.txt /new.html /style.css], heard.sort
    assert_equal %w[/a/b.html], changes(own) { write(own, "a/b.html", "<p>other") }
  end

  it "asks for the password of the site at its own addresses, also where rules have a page for every path" do
    rules = JSON.generate(basic_auth: true, routes: { "/**" => "index.html" })
    own = site("--live-reload", files: FILES.merge("static.json" => rules, ".htpasswd" => "ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n"))
    assert_status 401, get("/.firebrick/live", to: own)
    assert_status 401, get("/.firebrick/live.js", to: own)
    script = get("/.firebrick/live.js", to: own, headers: { "Authorization" => "Basic #{['ann:password'].pack('m0')}" })
    assert_includes script.body, "EventSource"
  end

  it "leaves pages and paths of a site in front of an app as they are" do
    own = start(app: "run ->(env) { [200, { 'content-type' => 'text/html' }, ['app ' + env['PATH_INFO']]] }", settings: { site: { spa: true, live_reload: true } },
                files: { "static.json" => "{}", "public/index.html" => PAGE, "public/a.html" => "<p>a" })
    assert_equal "<p>a", get("/a.html", to: own).body
    ["/users/7", "/.firebrick/live", "/.firebrick/live.js"].each { |path| assert_equal "app #{path}", get(path, to: own).body }
  end

  it "ends at once although a page listens, and lets pages listen again after a change of the rules" do
    own = site("--live-reload", files: FILES.merge("static.json" => "{}"))
    closed_at_end(EventClient.new(own, "/.firebrick/live"))
    sleep 0.5
    write(own, "static.json", JSON.generate(headers: { "/**" => { "X-A" => "1" } }))
    wait_until("the new rules", within: 20) { get("/a/c.txt", to: own)["x-a"] == "1" }
    assert_equal %w[/style.css], changes(own) { write(own, "style.css", "p {}") }
    own.signal("TERM")
    assert(wait_until("the end", within: 5) { !own.running? })
  end

  def browse(own, path = "/")
    @browser ||= Browser.new
    page = @browser.page
    page.send(:command, "Page.navigate", { url: own.url(path) })
    page.wait("document.readyState == 'complete' && document.querySelector('script[src*=live]')")
    # The page has the text that it compares with, and the server has looked at the folder.
    sleep 1
    page.evaluate("window.stayed = true; document.getElementById('name') && (document.getElementById('name').value = 'typed'); scrollTo(0, 500)")
    page
  end

  def with_browser
    yield
  ensure
    @browser&.close
  end

  if Browser.installed?
    it "changes a page in Chromium, which keeps its place and what was typed" do
      own = site("--live-reload")
      with_browser do
        page = browse(own)
        write(own, "index.html", PAGE.sub("Hello", "Changed").sub("<p>Second</p>", "<p>Between</p><p>Second</p>").sub('id="head"', 'id="head" class="new"'))
        page.wait("document.getElementById('head').textContent == 'Changed'")
        assert_equal "First,Between,Second", page.evaluate("[...document.querySelectorAll('p')].map((p) => p.textContent).join()")
        assert_equal ["new", true, "typed", true, 1], page.evaluate("[head.className, stayed, document.getElementById('name').value, scrollY >= 500, runs]")
        write(own, "style.css", "body { color: rgb(9, 9, 9) }")
        page.wait("getComputedStyle(document.body).color == 'rgb(9, 9, 9)'")
        assert_equal 1, page.evaluate("document.querySelectorAll('link').length")
        write(own, "index.html", PAGE.sub("Hello", "Again"))
        page.wait("document.getElementById('head').textContent == 'Again'")
        assert_equal [true, "rgb(9, 9, 9)"], page.evaluate("[stayed, getComputedStyle(document.body).color]"), "the style stays"
        write(own, "page.js", "window.other = true")
        page.wait("window.other && !window.stayed")
      end
    end

    it "shows a page that was missing, and goes on after a change of the rules, in Chromium" do
      own = site("--live-reload", files: FILES.merge("static.json" => "{}"))
      with_browser do
        page = browse(own, "/later.html")
        write(own, "later.html", "<body><h1 id=there>There</h1></body>")
        page.wait("document.getElementById('there')")
        write(own, "static.json", JSON.generate(headers: { "/**" => { "X-A" => "1" } }))
        wait_until("the new rules", within: 20) { get("/later.html", to: own)["x-a"] == "1" }
        sleep 2
        write(own, "later.html", "<body><h1 id=there>Back</h1></body>")
        page.wait("document.getElementById('there')?.textContent == 'Back'")
      end
    end
  end
end
