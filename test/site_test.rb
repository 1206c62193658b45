# frozen_string_literal: true

# The documentation as a site (`make site`), served by the real server and opened in the real Chromium: every page, every link and section,
# the search, the keyboard, small screens, and axe for accessibility.
#
# TEST_SCREENSHOTS names a directory for screenshots of some pages.

require "cgi"
require "support/browser_case"

class SiteTest < BrowserCase
  AXE = File.join(Server::ROOT, "test/npm/node_modules/axe-core/axe.min.js")
  # Pages of each kind: start, tables, a long reference, code, diagrams.
  PICKED = %w[/ /from-puma /settings /start /architecture].freeze

  class << self
    # The site, built once, outside the checkout.
    def site
      @site ||= File.realpath(Dir.mktmpdir("documentation-site")).tap do |folder|
        output, status = Open3.capture2e(File.join(Server::ROOT, "script/site"), folder)
        raise Minitest::Assertion, "script/site failed:\n#{output}" unless status.success?
      end
    end

    def server = SharedServers.fetch(self) { Server.new(directory: site, workers: nil, threads: nil, environment: nil) }

    # Address => HTML of every page.
    def pages
      @pages ||= Dir["**/*.html", base: File.join(site, "_site")].sort.to_h do |file|
        [file == "index.html" ? "/" : "/#{file.delete_suffix('.html')}", File.read(File.join(site, "_site", file))]
      end
    end

    def over(reporter)
      super
    ensure
      FileUtils.remove_entry(@site) if @site
      @site = @pages = nil
    end
  end

  def pages = self.class.pages

  def ids(html) = html.scan(/ id="([^"]+)"/).flatten

  it "has a page for each document" do
    documents = Dir["docs/**/*.md", base: Server::ROOT].map { |file| file == "docs/README.md" ? "/docs" : "/#{file.delete_prefix('docs/').delete_suffix('.md')}" }
    assert_empty documents - pages.keys
    assert_empty %w[/readme /changelog /security /contributing /architecture /bench/results] - pages.keys
    assert_operator documents.size, :>, 70
  end

  it "serves every page, and its links lead to pages and sections" do
    broken = []
    served = Hash.new { |known, path| known[path] = get(path).status }
    pages.each do |address, html|
      assert_equal 200, served[address], address
      assert_equal ids(html).uniq, ids(html), "#{address} has an id twice"
      html.scan(/ (?:href|src)="([^"]*)"/).flatten.map { |link| CGI.unescapeHTML(link) }.uniq.grep_v(/\A[a-z]+:/).each do |link|
        path, section = link.split("#", 2)
        path = address if path.empty?
        broken << "#{address}: #{link}" unless path.start_with?("/") && served[path] == 200 && (section.nil? || ids(pages.fetch(path)).include?(section))
      end
    end
    assert_empty broken
    assert_status 404, get("/nowhere")
    assert_includes get("/nowhere").body, "There is no such page"
  end

  it "has pictures, none larger than 150 kB" do
    pictures = Dir[File.join(Server::ROOT, "docs/images/*")]
    assert_equal %w[dashboard.png profile.png top.png], pictures.map { |file| File.basename(file) }.sort
    pictures.each do |file|
      assert_operator File.size(file), :<=, 150_000, file
      assert_equal File.binread(file), get("/images/#{File.basename(file)}").body.b
      assert_includes pages.fetch("/"), "src=\"/images/#{File.basename(file)}\""
    end
  end

  it "makes tables of tables only, and nothing that a strict policy forbids" do
    pages.each do |address, html|
      refute_match(/ style=| on[a-z]+="|<style|<script(?! src)/, html.gsub(%r{<code.*?</code>}m, ""), address)
      assert_equal 1, html.scan(/<h1[ >]/).size, address
    end
    documents = Dir["docs/**/*.md", base: Server::ROOT] - ["docs/README.md"]
    documents.each do |file|
      rows = File.read(File.join(Server::ROOT, file)).gsub(/^```.*?^```/m, "").scan(/^\|.*\|$/).grep_v(/\A[|: -]+\z/).size
      assert_equal rows, pages["/#{file.delete_prefix('docs/').delete_suffix('.md')}"].scan(/<tr>/).size, "rows of the tables of #{file}"
    end
    assert_match(/default-src 'none'; script-src 'self'; style-src 'self'/, get("/")["content-security-policy"])
  end

  it "finds sections by words, and goes there by the keyboard" do
    page = open_page
    page.goto(server.url("/docs"))
    { "log rotation" => "/systemd#log-rotation", "zero-downtime" => "/docs#deploying", "phased restart" => "/from-puma#signals", "max_body" => "/settings#limitsmax_body" }.each do |words, place|
      page.evaluate("document.querySelector('#query').value = ''; document.querySelector('#query').focus()")
      page.type(words)
      page.wait("[...document.querySelectorAll('#hits a')].some((link) => link.getAttribute('href') === #{JSON.generate(place)})", within: 20)
    end
    page.evaluate("document.querySelector('#query').value = ''; document.querySelector('#query').focus()")
    page.type("log rotation")
    page.wait("document.querySelector('#hits a')?.getAttribute('href') === '/systemd#log-rotation'")
    picture(page, "search")
    page.press("Tab")
    page.press("Enter")
    page.wait("location.pathname + location.hash === '/systemd#log-rotation' && document.readyState === 'complete'")
    page.evaluate("document.querySelector('#query').focus()")
    page.type("xyzzyplugh")
    page.wait("document.querySelector('#count').innerText === 'Nothing found.'")
    page.press("Escape")
    assert page.evaluate("document.querySelector('#found').hidden")
    assert_empty page.console
    assert_empty page.failures.map(&:to_s)
  end

  it "is reached by Tab: the skip link, search and navigation, each with a visible focus" do
    page = open_page(width: 1300)
    page.goto(server.url("/queue"))
    reached = Array.new(8) do
      page.press("Tab")
      page.evaluate("(() => { const one = document.activeElement, style = getComputedStyle(one); return [one.id || one.className || one.tagName, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2, one.getBoundingClientRect().x >= 0] })()")
    end
    assert_equal ["skip", true, true], reached.first
    names = reached.map(&:first)
    assert_equal [0, 1, 2], [names.index("skip"), names.index("brand"), names.index("query")]
    assert_includes names, "SUMMARY"
    assert(reached.all? { |_, outlined, visible| outlined && visible }, reached.inspect)
  end

  it "skips to the text" do
    page = open_page
    page.goto(server.url("/queue"))
    page.press("Tab")
    page.press("Enter")
    page.wait("document.activeElement.id === 'main'")
  end

  it "fits small screens: no page scrolls sideways, and the menu opens" do
    page = open_page(width: 360, height: 740)
    wide = pages.keys.filter_map do |address|
      page.goto(server.url(address))
      width = page.evaluate("document.documentElement.scrollWidth")
      "#{address}: #{width}" if width > 360
    end
    assert_empty wide
    page.goto(server.url("/"))
    picture(page, "phone")
    assert_equal "none", page.evaluate("getComputedStyle(document.querySelector('#nav')).display")
    page.click(".menu")
    page.wait("document.querySelector('#nav').checkVisibility()")
    assert_operator page.evaluate("document.documentElement.scrollWidth"), :<=, 360
    picture(page, "menu")
    assert_empty page.console
  end

  it "works without JavaScript, and hides the search" do
    page = open_page(width: 1300)
    page.without_scripts
    page.goto(server.url("/queue"))
    assert_equal %w[none block], page.evaluate("[getComputedStyle(document.querySelector('#search')).display, getComputedStyle(document.querySelector('#nav')).display]")
    assert_equal %w[/assets/favicon.svg /assets/site.css /queue], page.requests.map(&:path).uniq.sort
  end

  %w[light dark].each do |scheme|
    it "has no fault that axe finds, #{scheme}" do
      skip "axe-core is not installed (script/setup test, with npm)" unless File.exist?(AXE)
      axe = File.read(AXE)
      { 1300 => PICKED, 360 => PICKED.first(2) }.each do |width, addresses|
        page = open_page(scheme: scheme, width: width)
        addresses.each do |address|
          page.goto(server.url(address))
          picture(page, "#{address.delete('/')}-#{scheme}-#{width}")
          page.evaluate(axe)
          found = page.evaluate("axe.run().then(({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html + ' ' + node.failureSummary).join(' ')}`))")
          assert_empty found, "#{address}, #{width} pixels wide"
        end
      end
    end
  end

  private

  def server = self.class.server

  def picture(page, name)
    folder = ENV["TEST_SCREENSHOTS"] or return
    FileUtils.mkdir_p(folder)
    page.screenshot(File.join(folder, "site-#{name}.png"))
  end
end
