# frozen_string_literal: true

# Pages with plots in the real Chromium: the gallery, which has every kind with realistic data, and plots of unusual data.
# A page passes when it loads nothing else, the console is empty, it does not scroll sideways, and no text is cut off or
# covered by another.
#
# TEST_SCREENSHOTS names a directory for screenshots. REPORT_EXAMPLES names that of the built examples; without it cargo builds them, and waits for
# other compilations.

require "support/browser_case"

class ReportPagesTest < BrowserCase
  WIDTHS = [360, 700, 1000, 1400].freeze

  class << self
    # Runs an example of the crate, built once; returns its output.
    def example(name, *flags, input: "")
      built = ENV.fetch("REPORT_EXAMPLES", nil)
      command = built ? [File.join(built, name)] : %W[cargo run --quiet -p report --example #{name} --]
      Open3.capture3(*command, *flags, stdin_data: input, chdir: Server::ROOT)
    end

    # The URL of a page.
    def address(flag = nil)
      @addresses ||= Hash.new do |known, key|
        html, output, status = example("gallery", *key)
        raise Minitest::Assertion, "the gallery failed:\n#{output}" unless status.success?

        known[key] = write("gallery#{key}.html", html)
      end
      @addresses[flag]
    end

    def write(name, text)
      @folder ||= File.realpath(Dir.mktmpdir("report"))
      path = File.join(@folder, name)
      File.write(path, text)
      "file://#{path}"
    end

    def over(reporter)
      super
    ensure
      FileUtils.remove_entry(@folder) if @folder
      @folder = @addresses = nil
    end
  end

  # Texts that leave their drawing or overlap each other. Labels over data have an outline, which is checked as well:
  # it may cover lines, but not letters.
  COLLISIONS = <<~SCRIPT
    (() => {
      const found = [];
      for (const svg of document.querySelectorAll("svg.plot")) {
        if (svg.getBoundingClientRect().width === 0) continue;
        const sheet = svg.getBoundingClientRect();
        const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
        texts.forEach(([text, box], index) => {
          if (box.left < sheet.left - 1 || box.right > sheet.right + 1 || box.top < sheet.top - 1 || box.bottom > sheet.bottom + 1)
            found.push(`${text} is cut`);
          for (const [other, at] of texts.slice(index + 1)) {
            const across = Math.min(box.right, at.right) - Math.max(box.left, at.left);
            const down = Math.min(box.bottom, at.bottom) - Math.max(box.top, at.top);
            if (across > 1 && down > 0.35 * Math.min(box.height, at.height)) found.push(`${text} and ${other} overlap`);
          }
        });
      }
      return found;
    })()
  SCRIPT

  # Texts on the page's background with too little contrast: WCAG 2.2, 1.4.3.
  FAINT = <<~SCRIPT
    (() => {
      const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
      const light = (colour) => {
        const [r, g, b] = numbers(colour).slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const ground = light(getComputedStyle(document.body).backgroundColor);
      const contrast = (colour) => (Math.max(light(colour), ground) + 0.05) / (Math.min(light(colour), ground) + 0.05);
      const drawn = [...document.querySelectorAll("svg.plot text")].filter((text) => !/\\b(on|t[0-9x])\\b/.test(text.getAttribute("class")));
      const written = [...document.querySelectorAll("h1, h2, h3, p, a, dt, dd, summary, th, footer, .sign")];
      const faint = (element, property) => contrast(getComputedStyle(element)[property]) < 4.5;
      return [...drawn.filter((text) => faint(text, "fill")), ...written.filter((text) => faint(text, "color"))].map((text) => text.textContent);
    })()
  SCRIPT

  WIDTHS.each do |width|
    it "shows every kind of plot #{width} pixels wide" do
      page = open_page(width:)
      page.goto(self.class.address)
      picture(page, "gallery-#{width}")
      assert_flawless page
      assert_equal [], page.evaluate(COLLISIONS)
      assert_equal page.evaluate("document.querySelectorAll('figure').length"), page.evaluate(<<~SCRIPT), "each figure shows one of its two drawings"
        [...document.querySelectorAll("svg.plot")].filter((svg) => svg.getBoundingClientRect().width > 0).length
      SCRIPT
      assert_operator page.evaluate(<<~SCRIPT), :>=, 10, "letters keep their size"
        Math.min(...[...document.querySelectorAll("svg.plot")].map((svg) => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width * svg.getAttribute("font-size")).filter(Boolean))
      SCRIPT
    end

    it "shows unusual data #{width} pixels wide" do
      page = open_page(width:)
      page.goto(self.class.address("--odd"))
      picture(page, "odd-#{width}")
      assert_flawless page
      assert_equal [], page.evaluate(COLLISIONS)
    end
  end

  %w[light dark].each do |scheme|
    it "has enough contrast when it is #{scheme}" do
      page = open_page(scheme:)
      page.goto(self.class.address)
      picture(page, "gallery-#{scheme}")
      assert_equal [], page.evaluate(FAINT)
      assert_equal scheme == "light", page.evaluate("getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'")
    end
  end

  it "prints black on white, without interactive parts" do
    page = open_page(scheme: "dark", width: 680)
    page.goto(self.class.address)
    emulate(page, media: "print")
    assert_equal "rgb(255, 255, 255)", page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert_equal [], page.evaluate(FAINT)
    assert_equal [], page.evaluate(COLLISIONS)
    shown = ->(selector) { page.evaluate("[...document.querySelectorAll(#{JSON.generate(selector)})].filter((it) => it.getBoundingClientRect().width > 0).length") }
    assert_equal 0, shown.call("details")
    assert_equal 0, shown.call("svg.narrow")
    assert_equal page.evaluate("document.querySelectorAll('figure').length"), shown.call("svg.wide")
    assert_equal "visible", page.evaluate("getComputedStyle(document.querySelector('.hatch')).visibility"), "areas differ without colours"
    refute_equal "none", page.evaluate("getComputedStyle(document.querySelector('.s1')).strokeDasharray"), "lines differ without colours"
    paper = self.class.browser.command("Page.printToPDF", { preferCSSPageSize: true }, session: page.session).fetch("data")
    assert_operator paper.unpack1("m").bytesize, :<, 2_000_000, "nothing is rasterized"
  end

  it "shows the figures under the pointer" do
    page = open_page(width: 1000)
    page.goto(self.class.address)
    point(page, "figure:first-of-type svg.wide", 0.5)
    row = page.evaluate("document.querySelector('figure .tip').innerText").split("\n")
    assert_match(/\Atime \d+ s\z/, row.first)
    names = row.drop(1).map { |line| line[/\A\w+/] }
    assert_equal %w[p50 p95 p99], names
    assert_match(/\Ap50: [\d.]+ m?s\z/, row[1])
    assert_equal "visible", page.evaluate("getComputedStyle(document.querySelector('svg.wide .guide')).visibility")
    page.evaluate("document.querySelector('svg.wide').dispatchEvent(new PointerEvent('pointerleave'))")
    assert page.evaluate("document.querySelector('figure .tip').hidden")
    assert_flawless page
  end

  it "includes the data of each plot" do
    page = open_page
    page.goto(self.class.address)
    empty = page.evaluate(<<~SCRIPT)
      [...document.querySelectorAll("figure")].filter((figure) => figure.querySelectorAll("tbody tr").length === 0).length
    SCRIPT
    assert_equal 0, empty
    page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    assert_flawless page
    labels = page.evaluate("[...document.querySelectorAll('svg.plot')].map((svg) => [svg.getAttribute('role'), svg.getAttribute('aria-label')])")
    labels.each do |role, label|
      assert_equal "img", role
      assert_operator label.length, :>, 30, "a drawing describes what it shows"
    end
  end

  it "works without its script" do
    with = open_page
    with.goto(self.class.address)
    without = open_page
    self.class.browser.command("Emulation.setScriptExecutionDisabled", { value: true }, session: without.session)
    without.goto(self.class.address)
    self.class.browser.command("Emulation.setScriptExecutionDisabled", { value: false }, session: without.session)
    assert_equal 0, without.evaluate("document.querySelectorAll('.tip').length"), "the script did not run"
    assert_equal with.text, without.text
  end

  it "writes a plot as a standalone file, light and dark" do
    svg, errors, status = self.class.example("plot", input: <<~PLOT)
      {"bars": {"title": "Requests <in> a second", "x": {"label": "requests", "unit": "per_second"}, "groups": [
        {"label": "Firebrick", "marked": true, "bars": [{"value": 4210, "low": 4100, "high": 4300}]},
        {"label": "H2O with mruby", "bars": [{"value": null, "note": "not run"}]}]}}
    PLOT
    assert_predicate status, :success?, errors
    address = self.class.write("plot.svg", svg)
    grounds = %w[light dark].map do |scheme|
      page = open_page(scheme:)
      page.goto(address)
      assert_equal [], page.console
      assert_equal "Requests <in> a second", page.evaluate("document.querySelector('text.title').textContent")
      page.evaluate("getComputedStyle(document.querySelector('.paper')).fill")
    end
    assert_equal ["rgb(255, 255, 255)", "rgb(20, 24, 29)"], grounds
  end

  it "reports where the data of a plot is invalid" do
    { '{"lines": {"lines": [{"name": "p99", "points": [[0, "12"]]}]}}' => /lines\.lines\[0\]\.points\[0\]\[1\]: invalid type: string "12", expected f64 at line 1/,
      '{"pie": {}}' => /unknown variant `pie`, expected one of `lines`/,
      '{"heat": {"colums": []}}' => /heat\.colums: unknown field `colums`, expected one of .*`columns`/,
      "" => /EOF while parsing/ }.each do |input, message|
      out, errors, status = self.class.example("plot", input:)
      assert_equal 2, status.exitstatus
      assert_match message, errors
      assert_empty out
    end
  end

  private

  # Only the page itself was requested, the console is empty, and it does not scroll sideways.
  def assert_flawless(page)
    assert_equal [], page.console
    assert_equal 1, page.requests.reject { |request| request.url.start_with?("data:") }.length, page.requests.join("\n")
    assert_operator page.evaluate("document.documentElement.scrollWidth"), :<=, page.evaluate("document.documentElement.clientWidth")
  end

  def emulate(page, **options)
    self.class.browser.command("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }], **options }, session: page.session)
  end

  # Moves the mouse over an element, at this share of its width.
  def point(page, selector, share)
    x, y = page.evaluate(<<~SCRIPT)
      (() => {
        const element = document.querySelector(#{JSON.generate(selector)});
        element.scrollIntoView({ block: "center" });
        const box = element.getBoundingClientRect();
        return [box.x + box.width * #{share}, box.y + box.height / 2];
      })()
    SCRIPT
    self.class.browser.command("Input.dispatchMouseEvent", { type: "mouseMoved", x:, y: }, session: page.session)
    page.wait("!document.querySelector('figure .tip').hidden")
  end

  def picture(page, name)
    folder = ENV["TEST_SCREENSHOTS"] or return

    FileUtils.mkdir_p(folder)
    page.screenshot(File.join(folder, "report-#{name}.png"))
  end
end
