# frozen_string_literal: true

# The two static examples in a browser: served by the real server, opened in the real Chromium. A page passes when
# everything on it is loaded and the console is empty.
#
# TEST_SCREENSHOTS names a directory for screenshots of all pages, light and dark.

require "support/browser_case"

class PagesTest < BrowserCase
  EXAMPLES = File.join(Server::ROOT, "examples")

  class << self
    # The blog, built once, outside the checkout.
    def blog
      @blog ||= File.join(File.realpath(@built = Dir.mktmpdir("blog")), "jekyll").tap do |dir|
        FileUtils.cp_r(File.join(EXAMPLES, "jekyll"), dir)
        FileUtils.rm_rf(File.join(dir, "_site"))
        output, status = Open3.capture2e({ "JEKYLL_ENV" => "production" }, "jekyll", "build", "--disable-disk-cache", chdir: dir)
        raise Minitest::Assertion, "jekyll build failed:\n#{output}" unless status.success?
      end
    end

    def over(reporter)
      super
    ensure
      FileUtils.remove_entry(@built) if @built
      @built = @blog = nil
    end
  end

  it "opens the blog with all its assets" do
    site = start_blog
    page = open_page
    assert_equal 200, page.goto(site.url).status
    assert_flawless page
    assert_equal %w[/ /assets/favicon.svg /assets/site.css /assets/wall.svg], page.requests.map(&:path).uniq.sort
    assert_equal "The Kiln Book", page.title
    assert_equal ["Lime mortar, by hand", "English and Flemish bond", "How a brick is fired"], texts(page, ".posts h2")
    assert_styled page
  end

  it "navigates the blog by its links, back and forward" do
    site = start_blog
    page = open_page
    page.goto(site.url)
    follow(page, ".posts li:nth-child(2) h2 a", "/posts/english-and-flemish-bond")
    follow(page, "nav [rel=next]", "/posts/lime-mortar-by-hand")
    page.evaluate("history.back()")
    page.wait("location.pathname === '/posts/english-and-flemish-bond' && document.readyState === 'complete'")
    page.evaluate("history.forward()")
    page.wait("location.pathname === '/posts/lime-mortar-by-hand' && document.readyState === 'complete'")
    follow(page, "nav a[href='/about']", "/about")
    page.settle
    assert_flawless page
  end

  it "opens posts and the page directly, by their clean URLs" do
    site = start_blog
    { "/posts/how-a-brick-is-fired" => "How a brick is fired", "/posts/english-and-flemish-bond" => "English and Flemish bond",
      "/posts/lime-mortar-by-hand" => "Lime mortar, by hand", "/about" => "About", "/about.html" => "About" }.each do |path, title|
      page = open_page
      assert_equal 200, page.goto(site.url(path)).status, path
      assert_flawless page
      assert_equal title, page.text("h1")
      assert_equal path, page.path
    end
  end

  it "shows the blog's own 404 page" do
    site = start_blog
    ["/nowhere", "/posts/nowhere", "/nowhere.html", "/assets/nowhere.css"].each do |path|
      page = open_page
      document = page.goto(site.url(path))
      assert_equal [404, "text/html"], [document.status, document.mime], path
      assert_equal "There is no brick here", page.text("h1")
      assert_styled page
      assert_equal [document], page.failures, "everything but the document itself is loaded"
      assert_equal ["error: Failed to load resource: the server responded with a status of 404 (Not Found) #{site.url(path)}"], page.console
    end
  end

  it "redirects and sets caching as the blog's static.json says" do
    site = start_blog
    moved = get("/rss", to: site)
    assert_status 301, moved
    assert_equal "/feed.xml", moved["location"]
    assert_equal "public, max-age=300", moved["cache-control"]
    renamed = get("/posts/how-bricks-are-made", to: site)
    assert_equal [301, "/posts/how-a-brick-is-fired"], [renamed.status, renamed["location"]]
    feed = get("/feed.xml", to: site)
    assert_status 200, feed
    assert_match(%r{\A(text|application)/xml}, feed["content-type"])
    assert_equal 3, feed.body.scan("<entry>").size
    assert_equal "public, max-age=604800", get("/assets/site.css", to: site)["cache-control"]
    assert_equal "default-src 'self'", get("/about", to: site)["content-security-policy"]
    %w[/README.md /static.json /_config.yml /.gitignore].each { |path| assert_status 404, get(path, to: site), path }
  end

  it "shows a new build without a restart" do
    with_own_blog do |dir|
      site = start(directory: dir, **plain)
      page = open_page
      page.goto(site.url("/about"))
      File.write(File.join(dir, "_site", "about.html"), "<!doctype html><link rel=icon href=/assets/favicon.svg><h1>Another</h1>")
      page.goto(site.url("/feed.xml"))
      page.evaluate("fetch('/about', { cache: 'reload' }).then((response) => response.text())")
      page.goto(site.url("/about"))
      assert_equal "Another", page.text("h1")
    end
  end

  it "opens the app with the API's data" do
    site = start_app
    page = open_page
    assert_equal 200, page.goto(site.url).status
    page.wait("document.querySelector('h1')")
    page.settle
    assert_flawless page
    assert_equal "2 of 5 done", page.text("h1")
    assert_includes page.text(".next"), "Lay the first course"
    assert_equal "application/json", page.requests.find { |request| request.path == "/api/tasks" }.mime
    assert_styled page
  end

  it "opens each address of the app directly" do
    site = start_app
    { "/tasks" => "Tasks", "/tasks/3" => "Lay the first course", "/about" => "About", "/nowhere/at/all" => "Not found" }.each do |path, title|
      page = open_page
      assert_equal 200, page.goto(site.url(path)).status, path
      page.wait("document.querySelector('h1')?.innerText === #{JSON.generate(title)}")
      page.settle
      assert_flawless page
      assert_equal path, page.path
    end
  end

  it "navigates the app without loading another page, back and forward" do
    site = start_app
    page = open_page
    page.goto(site.url("/tasks/3"))
    arrive(page, "/tasks/3", "Lay the first course")
    page.click("nav a[href='/tasks']")
    arrive(page, "/tasks", "Tasks")
    page.click(".tasks li:nth-child(5) a")
    arrive(page, "/tasks/5", "Point the joints")
    page.click("nav a[href='/about']")
    arrive(page, "/about", "About")
    [["/tasks/5", "Point the joints"], ["/tasks", "Tasks"], ["/tasks/3", "Lay the first course"]].each do |path, title|
      page.evaluate("history.back()")
      arrive(page, path, title)
    end
    page.evaluate("history.forward()")
    arrive(page, "/tasks", "Tasks")
    page.settle
    assert_flawless page
    assert_equal ["/tasks/3"], page.requests.select { |request| request.type == "Document" }.map(&:path), "documents loaded"
  end

  it "writes through the proxy: adds a task and ticks another" do
    site = start_app
    page = open_page
    page.goto(site.url("/tasks"))
    arrive(page, "/tasks", "Tasks")
    page.click("form input")
    page.type("Fetch <b>water</b> \u{1f9f1}")
    page.click("form button")
    page.wait("document.querySelectorAll('.tasks li').length === 6")
    page.click(".tasks li:nth-child(3) input")
    page.wait("(({ checked, disabled }) => checked && !disabled)(document.querySelector('.tasks li:nth-child(3) input'))")
    page.settle
    assert_flawless page
    assert_equal "Fetch <b>water</b> \u{1f9f1}", texts(page, ".tasks li").last

    page.goto(site.url("/tasks/6"))
    arrive(page, "/tasks/6", "Fetch <b>water</b> \u{1f9f1}")
    tasks = get("/api/tasks", to: site).json
    assert_equal([true, true, true, false, false, false], tasks.map { |task| task["done"] })
    assert_equal "no-store", get("/api/tasks", to: site)["cache-control"]
  end

  it "responds with 404 to missing assets and unknown API paths" do
    site = start_app
    %w[/assets/nowhere.js /assets/deep/nowhere.css /assets/].each do |path|
      missing = get(path, to: site)
      assert_status 404, missing, path
      refute_includes missing.body, "Site Diary", path
    end
    assert_equal "there is no such task", get("/api/tasks/99", to: site).json["error"]
    assert_status 404, get("/api/nowhere", to: site)
    page = open_page
    page.goto(site.url("/tasks/99"))
    arrive(page, "/tasks/99", "Not found")
    assert_equal ["/api/tasks/99"], page.failures.map(&:path)
  end

  it "shows an error when the API is down" do
    site = start(directory: File.join(EXAMPLES, "spa"), env: { "API_URL" => "http://127.0.0.1:#{unused_port}" }, **plain)
    page = open_page
    page.goto(site.url("/tasks"))
    arrive(page, "/tasks", "The API does not respond")
    assert_equal([["/api/tasks", 502]], page.failures.map { |request| [request.path, request.status] })
    page.click("nav a[href='/about']")
    arrive(page, "/about", "About")
  end

  it "passes check for both, and explains the paths of the READMEs" do
    blog = start_blog
    app = start_app
    { blog => { "/rss" => "/feed.xml", "/posts/lime-mortar-by-hand" => "/posts/lime-mortar-by-hand.html", "/nowhere" => "404" },
      app => { "/api/tasks" => "/tasks", "/tasks/3" => "/index.html", "/assets/nowhere.js" => "404" } }.each do |site, answers|
      out, err, code = site.command_line("check")
      assert_equal [0, ""], [code, err], out
      answers.each do |path, answer|
        out, err, code = site.command_line("explain", path)
        assert_equal [0, ""], [code, err], path
        assert_includes out[/^response: .*/].to_s, answer, path
      end
    end
  end

  it "follows the light or dark colour scheme" do
    blog = %w[/ /posts/how-a-brick-is-fired /posts/english-and-flemish-bond /about /nowhere]
    app = %w[/ /tasks /tasks/3 /about /nowhere]
    { start_blog => blog, start_app => app }.each do |site, paths|
      light, dark = %w[light dark].map { |scheme| lightness(site, paths, scheme) }
      paths.each do |path|
        assert_operator light[path]["paper"], :>, 200, "#{path}: paper by day"
        assert_operator light[path]["ink"], :<, 80, "#{path}: ink by day"
        assert_operator dark[path]["paper"], :<, 50, "#{path}: paper by night"
        assert_operator dark[path]["ink"], :>, 200, "#{path}: ink by night"
      end
    end
  end

  private

  # Static sites need none of the flags for apps.
  def plain = { workers: nil, threads: nil, environment: nil }

  def start_blog
    jekyll_only
    start(directory: self.class.blog, **plain)
  end

  def with_own_blog
    jekyll_only
    Dir.mktmpdir("blog") do |dir|
      FileUtils.cp_r("#{self.class.blog}/.", dir)
      yield File.realpath(dir)
    end
  end

  def jekyll_only
    skip "jekyll is not installed" unless system("which jekyll > /dev/null")
  end

  # Starts the API, then the site with the API's address.
  def start_app
    api = start(directory: File.join(EXAMPLES, "spa", "api"), workers: 1)
    start(directory: File.join(EXAMPLES, "spa"), env: { "API_URL" => api.url("") }, **plain)
  end

  def unused_port
    TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
  end

  def texts(page, selector)
    page.evaluate("[...document.querySelectorAll(#{JSON.generate(selector)})].map((element) => element.innerText.trim())")
  end

  # A link to another document.
  def follow(page, selector, path)
    page.click(selector)
    page.wait("location.pathname === #{JSON.generate(path)} && document.readyState === 'complete'")
  end

  # Asserts that a view of the app is shown.
  def arrive(page, path, title)
    page.wait("location.pathname === #{JSON.generate(path)} && document.querySelector('h1')?.innerText === #{JSON.generate(title)}")
  end

  def assert_flawless(page)
    assert_empty page.console, "the console"
    assert_empty page.failures.map(&:to_s), "failed requests"
    strange = page.requests.reject { |request| request.abandoned || [200, 201].include?(request.status) }
    assert_empty strange.map(&:to_s), "requests without a complete response"
    broken = page.evaluate("[...document.images].filter((image) => !image.complete || image.naturalWidth === 0).map((image) => image.src)")
    assert_empty broken, "broken images"
    icon = page.evaluate("fetch(document.querySelector('link[rel=icon]').href).then((icon) => [icon.status, icon.headers.get('content-type')])")
    assert_equal [200, "image/svg+xml"], icon, "the favicon"
  end

  # The style sheet applies, not only loads.
  def assert_styled(page)
    assert_equal %w[flex 0px], page.evaluate("[getComputedStyle(document.querySelector('body > header')).display, getComputedStyle(document.body).marginTop]")
  end

  # Lightness of background and text of each page, 0 to 255; takes a screenshot where wanted.
  def lightness(site, paths, scheme)
    page = open_page(scheme: scheme)
    paths.to_h do |path|
      page.goto(site.url(path))
      page.wait("document.querySelector('h1')")
      picture(page, File.basename(site.dir), path, scheme)
      [path, page.evaluate(<<~SCRIPT)]
        (() => {
          const light = (colour) => colour.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3;
          return { paper: light(getComputedStyle(document.documentElement).backgroundColor), ink: light(getComputedStyle(document.querySelector("h1")).color) };
        })()
      SCRIPT
    end
  end

  def picture(page, name, path, scheme)
    dir = ENV.fetch("TEST_SCREENSHOTS", nil) or return
    FileUtils.mkdir_p(dir)
    page.screenshot(File.join(dir, "#{name}#{path.tr('/', '-')}-#{scheme}.png"))
  end
end
