# frozen_string_literal: true

# The control port: authentication, access checks, the last hour's history, and the dashboard in the real Chromium, with a
# server under load.
#
# TEST_SCREENSHOTS names a directory for screenshots of the page, light and dark, wide and narrow.

require "net/http"
require "support/browser_case"
require "support/load"

class ControlPortTest < Case
  parallel!

  APP = 'run ->(_) { [200, { "content-type" => "text/plain" }, ["hello"]] }'
  TOKEN = "0123456789abcdef+/=~"

  shared_server app: APP, args: ["--control", "tcp://127.0.0.1:0"], env: { "FIREBRICK_CONTROL_TOKEN" => TOKEN }

  def setup
    firebrick_only
  end

  def port(of = server)
    of.stdout[%r{^\* Control on tcp://127\.0\.0\.1:(\d+)$}, 1]&.to_i or flunk "no control port in:\n#{of.stdout}"
  end

  def fetch(target, headers = {}, of: server)
    Net::HTTP.start("127.0.0.1", port(of)) { |http| http.get(target, headers) }
  end

  def bearer(token = TOKEN) = { "Authorization" => "Bearer #{token}" }

  it "requires its token, in one of two forms" do
    ["/stats", "/history", "/requests", "/puma/stats", "/", "/nothing"].each do |target|
      response = fetch(target)
      assert_equal ["403", "Invalid auth token"], [response.code, response.body], target
    end
    assert_equal "200", fetch("/stats", bearer).code
    assert_equal "200", fetch("/stats?token=#{URI.encode_www_form_component(TOKEN)}").code
    [bearer("wrong"), bearer(TOKEN[0..-2]), bearer("#{TOKEN}x"), bearer(""), { "Authorization" => "Basic #{TOKEN}" }].each do |headers|
      assert_equal "403", fetch("/stats", headers).code, headers.inspect
    end
    assert_equal "404", fetch("/nothing", bearer).code
  end

  it "refuses requests with another Host" do
    ["evil.example", "evil.example:#{port}", "127.0.0.1.evil.example", "localhost.evil.example"].each do |host|
      response = fetch("/stats", bearer.merge("Host" => host))
      assert_equal "403", response.code, host
      assert_match(/Host field names another machine/, response.body)
      assert_equal "403", fetch("/dashboard", { "Host" => host }).code
    end
    %w[localhost 127.0.0.1 [::1] x.localhost].each { |host| assert_equal "200", fetch("/stats", bearer.merge("Host" => "#{host}:#{port}")).code, host }
  end

  it "cannot be framed or read by other pages" do
    [fetch("/dashboard"), fetch("/stats", bearer.merge("Origin" => "http://evil.example")), fetch("/stats")].each do |response|
      assert_equal %w[DENY nosniff no-store no-referrer], response.to_hash.values_at("x-frame-options", "x-content-type-options", "cache-control", "referrer-policy").flatten
      assert_match(/default-src 'none'/, response["content-security-policy"])
      assert_empty response.to_hash.keys.grep(/access-control/)
    end
    page = fetch("/dashboard")
    assert_match(/script-src 'sha256-/, page["content-security-policy"])
    refute_match(/unsafe/, page["content-security-policy"])
    refute_includes page.body, TOKEN
  end

  it "gives browsers the dashboard and programs the list of endpoints" do
    assert_match(%r{\Atext/html}, fetch("/", { "Accept" => "text/html,*/*;q=0.8" })["content-type"])
    list = fetch("/", bearer)
    assert_equal "application/json", list["content-type"]
    assert_includes JSON.parse(list.body)["endpoints"].map { |endpoint| endpoint["path"] }, "/history"
  end

  it "returns the history" do
    history = JSON.parse(fetch("/history", bearer).body)
    assert_equal [10, server.pid], history.values_at("step_s", "pid")
    assert_kind_of Array, history["points"]
  end

  it "is used by firebrick's own commands" do
    address = "tcp://127.0.0.1:#{port}"
    [["stats", "--json"], ["top", "--once", "--json", "--interval", "200ms"]].each do |command|
      out, err, code = server.command_line(*command, "--control", address, "--token", TOKEN)
      assert_equal ["", 0], [err, code], command.first
      assert_kind_of Hash, JSON.parse(out)
      out, err, code = server.command_line(*command, "--control-url", address, "--control-token", "wrong")
      assert_equal ["", 1], [out, code], command.first
      assert_match(/Invalid auth token.*--token/, err)
    end
  end

  it "works with pumactl" do
    skip "pumactl is not installed" unless system("which pumactl", out: File::NULL)
    out, status = Open3.capture2e("pumactl", "-C", "tcp://127.0.0.1:#{port}", "-T", TOKEN, "stats")
    assert status.success?, out
    assert_includes out, '"requests"'
    out, = Open3.capture2e("pumactl", "-C", "tcp://127.0.0.1:#{port}", "-T", "wrong", "stats")
    assert_match(/Unauthorized|Invalid auth token|wrong token|403/i, out)
  end

  it "keeps the control socket, which needs no token" do
    assert_equal server.pid, server.stats["pid"]
  end

  it "never prints a configured token" do
    refute_includes server.stdout + server.stderr, TOKEN
    assert_match(%r{^\* Dashboard: http://127\.0\.0\.1:\d+/dashboard$}, server.stdout)
  end

  it "generates a token and prints it once, with the link, even with -q" do
    [[], ["-q"]].each do |quiet|
      own = Server.new(app: APP, args: ["--control", "tcp://127.0.0.1:0", *quiet])
      @own_servers << own.launch
      link = nil
      wait_until(within: 30) { link = own.stdout[%r{^\* Dashboard: (http://127\.0\.0\.1:\d+/dashboard#token=\h{32})$}, 1] } or flunk own.report
      uri = URI(link)
      # With -q the link is printed before the app is loaded. Until then there are no figures, which is 503.
      wait_until("figures", within: 10) { Net::HTTP.get_response("127.0.0.1", "/stats?#{uri.fragment}", uri.port).code == "200" }
      assert_equal 1, own.stdout.scan(uri.fragment.delete_prefix("token=")).size
    end
  end

  it "refuses to listen on other addresses without a strong token" do
    { nil => /no control_token/, "short" => /shorter than 16/ }.each do |token, words|
      %w[serve check].each do |command|
        out, err, status = Open3.capture3({ "FIREBRICK_CONTROL_TOKEN" => token, **Server.ruby_files }, Server.binary, command, server.dir, "--control", "tcp://0.0.0.0:0", "-b", "tcp://127.0.0.1:0")
        assert_equal 1, status.exitstatus, out
        assert_match words, err
        assert_match(%r{tcp://0\.0\.0\.0:0 can be reached from other machines}, err)
      end
    end
    open = start(app: APP, args: ["--control", "tcp://0.0.0.0:0"], env: { "FIREBRICK_CONTROL_TOKEN" => TOKEN })
    assert_match(%r{^\* Control on tcp://0\.0\.0\.0:\d+$}, open.stdout)
  end

  it "reports that its port is in use" do
    out, err, status = Open3.capture3(Server.ruby_files, Server.binary, "serve", server.dir, "--control", "tcp://127.0.0.1:#{port}", "-b", "tcp://127.0.0.1:0")
    assert_equal 1, status.exitstatus, out
    assert_match(/control port .*another program listens there/, err)
  end

  it "survives clients that send nothing or garbage" do
    silent = Array.new(40) { TCPSocket.new("127.0.0.1", port) }
    server.stats # at the socket at once
    silent.each(&:close)
    TCPSocket.open("127.0.0.1", port) { |socket| socket.write("\x16\x03\x01\0\0nonsense\r\n\r\n") }
    assert_equal "200", fetch("/stats", bearer).code
  end
end

class DashboardTest < BrowserCase
  APP = <<~RUBY
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/slow" then sleep 12
      when "/broken" then return [500, {}, ["broken"]]
      when "/missing" then return [404, {}, ["missing"]]
      else sleep(rand * 0.02)
      end
      [200, { "content-type" => "text/plain" }, ["hello"]]
    end)
  RUBY

  shared_server app: APP, workers: 2, threads: "5", args: ["--control", "tcp://127.0.0.1:0"]

  def link(of = server)
    of.stdout[/^\* Dashboard: (\S+)$/, 1] or flunk "no dashboard in:\n#{of.stdout}"
  end

  def picture(page, name)
    folder = ENV["TEST_SCREENSHOTS"] or return
    FileUtils.mkdir_p(folder)
    page.screenshot(File.join(folder, "dashboard-#{name}.png"))
  end

  # For each chart of times: its title, and the styles of the series that have a curve.
  CURVES = "Object.fromEntries([...document.querySelectorAll('#charts figure')].map((figure) => [figure.querySelector('h2').innerText, " \
           "[...new Set([...figure.querySelectorAll('path.curve')].map((curve) => curve.classList[1]))].sort().join(' ')]))"
  DRAWN = { "Response time" => "one three two", "Throughput, requests per minute" => "one", "Memory" => "one two", "CPU" => "one",
            "Queue" => "one two", "Errors per minute" => "" }.freeze

  # Waits until every series that is not drawn as columns has a curve. Response times have none before a step of the history, which is ten
  # seconds, had requests; steps from before the load do not count.
  def wait_for_curves(page)
    page.wait("JSON.stringify(#{CURVES}) === #{JSON.generate(JSON.generate(DRAWN))}", within: 40)
  rescue Browser::Refusal
    flunk "drawn: #{page.evaluate(CURVES)}"
  end

  # Asserts that the page does not scroll sideways.
  def assert_fits(page)
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert_operator wide.first, :<=, wide.last, "the page is wider than the screen"
  end

  it "shows a busy server: figures, curves, workers, and the state of its requests" do
    loads = %w[/ /broken /missing].zip([6, 1, 1]).map { |path, clients| Load.new(server.address, clients: clients, path: path, pause: 0.01).start }
    page = open_page(width: 1300, height: 1500)
    assert_equal 200, page.goto(link).status
    page.wait("document.querySelectorAll('#tiles strong').length === 7")
    assert_equal ["/dashboard", "", ""], page.evaluate("[location.pathname, location.hash, location.search]"), "the token is still in the address"
    page.wait("document.querySelector('#notice').innerText.includes('Collecting since')") if page.evaluate("Number(document.querySelector('#charts').dataset.points)") < 2
    page.wait("Number(document.querySelector('#charts').dataset.points) >= 2", within: 40)
    page.wait("document.querySelector('#tiles strong').innerText.match(/^[1-9][\\d,.]* \\/s$/)")
    assert_equal ["Response time", "Throughput, requests per minute", "Memory", "CPU", "Queue", "Errors per minute"], page.evaluate("[...document.querySelectorAll('figcaption h2')].map((one) => one.innerText)")
    wait_for_curves(page)
    assert_operator page.evaluate("document.querySelectorAll('rect.column').length"), :>=, 2
    assert_equal 2, page.evaluate("document.querySelectorAll('#workers tr').length")
    assert_match(/ms/, page.evaluate("document.querySelector('svg').getAttribute('aria-label')"))
    slow = connect
    slow.write(request("GET", "/slow"))
    page.wait("document.querySelector('#requests').innerText.includes('GET /slow')")
    page.evaluate("[...document.querySelectorAll('#requests tr')].find((row) => row.innerText.includes('/slow')).querySelector('button').click()")
    page.wait("document.querySelector('#lines').innerText.includes('config.ru:')")
    picture(page, "light")
    page.wait("Number(document.querySelector('#charts').dataset.points) >= 4", within: 40)
    loads.each(&:stop)
    assert_status 200, slow.read_response
    assert_empty page.console
    assert_empty page.failures.map(&:to_s)
    assert_equal ["127.0.0.1"], page.requests.map { |one| URI(one.url).host }.compact.uniq, "requests to another host"
    { "dark" => ["dark", 1300], "phone" => ["light", 360], "phone-dark" => ["dark", 390], "tablet" => ["light", 800] }.each do |name, (scheme, width)|
      other = open_page(scheme: scheme, width: width, height: 2400)
      other.goto(link)
      wait_for_curves(other)
      assert_fits other
      assert_empty other.console
      picture(other, name)
    end
    assert_fits page
  end

  it "asks for a missing token, and keeps it for its tab" do
    page = open_page
    page.goto(link.sub(/#.*/, ""))
    page.wait("!document.querySelector('#ask').hidden")
    assert page.evaluate("document.querySelector('#main').hidden")
    picture(page, "token")
    page.click("#token")
    page.type("wrong")
    page.click("#ask button")
    page.wait("document.querySelector('#wrong').innerText === 'That is not its token.'")
    page.click("#token")
    page.type(link[/token=(\h+)/, 1])
    page.click("#ask button")
    page.wait("!document.querySelector('#main').hidden && document.querySelectorAll('#tiles strong').length === 7")
    page.goto(link.sub(/#.*/, ""))
    page.wait("document.querySelectorAll('#tiles strong').length === 7")
    with_query = open_page
    with_query.goto(link.sub("#", "?"))
    with_query.wait("document.querySelectorAll('#tiles strong').length === 7")
    assert_equal "", with_query.evaluate("location.search")
  end

  it "reports that the server is gone, and that it was restarted" do
    folder = Dir.mktmpdir("firebrick-dashboard")
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    options = { app: APP, args: ["--control", "tcp://127.0.0.1:#{port}", "--control-token", "secret"] }
    own = start(**options)
    page = open_page
    page.goto("http://127.0.0.1:#{port}/dashboard#token=secret")
    page.wait("document.body.className === 'live' && document.querySelectorAll('#tiles strong').length === 7")
    assert_empty own.finish
    page.wait("document.body.className === 'gone' && document.querySelector('#notice').innerText.includes('has not answered since')")
    picture(page, "gone")
    start(**options)
    page.wait("document.body.className === 'live' && document.querySelector('#notice').innerText.includes('Another server')")
  ensure
    FileUtils.remove_entry(folder, true)
  end

  it "shows reloads and how workers ended" do
    own = start(app: ControlPortTest::APP, workers: 2, settings: { reload: { watch: "60s" } }, args: ["--control", "tcp://127.0.0.1:0"])
    page = open_page(width: 1300, height: 1500)
    page.goto(link(own))
    page.wait("document.querySelectorAll('#workers tr').length === 2")
    assert_equal [true, true, true], page.evaluate("['reload', 'graves', 'generation'].map((name) => document.getElementById(name).hidden)")
    Process.kill("KILL", own.stats["workers"].first["pid"])
    page.wait("document.querySelector('#deaths').innerText.includes('signal 9 (KILL)')")
    assert_equal "Since the start: 1 signal.", page.evaluate("document.querySelector('#counted').innerText")
    reload = Thread.new { own.command_line("reload", own.dir) }
    page.wait("document.querySelector('#reload').innerText.match(/Reload, watching: one worker serves up to 25 % of the requests for [45]\\d s more/)", within: 40)
    page.wait("[...document.querySelectorAll('#workers tr')].some((row) => row.cells[1].innerText === '2')")
    assert_fits page
    picture(page, "reload")
    own.command_line("reload", own.dir, "--undo")
    assert_equal 1, reload.value.last
    page.wait("document.querySelector('#reload').innerText.match(/^Last reload: undone \\d+ s ago: /)")
    assert_empty page.console
  end

  it "shows services, and a range of workers with the reason of its last change" do
    services = { jobs: ["sh", "-c", "exec sleep 1000"], push: { command: ["sh", "-c", "exit 3"], restart: "never" } }
    own = start(app: ControlPortTest::APP, workers: "1:3", settings: { services: services }, args: ["--control", "tcp://127.0.0.1:0"])
    wait_until("services", within: 20) { own.stats["services"].map { |one| one["state"] } == %w[running ended] }
    page = open_page(width: 1300, height: 1500)
    page.goto(link(own))
    page.wait("document.querySelectorAll('#crafts tr').length === 2")
    jobs, push = page.evaluate("[...document.querySelectorAll('#crafts tr')].map((row) => [...row.cells].map((cell) => cell.innerText))")
    assert_equal ["jobs", "running", own.stats["services"].first["pid"].to_s, "0", ""], jobs.values_at(0, 1, 3, 4, 5)
    assert_equal %w[push ended – 0], push.values_at(0, 1, 3, 4)
    assert_match(/exit code 3/, push.last)
    assert_equal "1 of 1:3", page.evaluate("document.querySelector('#size').innerText")
    Process.kill("TTIN", own.pid)
    page.wait("document.querySelector('#size').innerText.match(/^2 of 1:3, set by a signal until the next reload; grew 1 → 2, \\d+ s ago: by signal$/)")
    assert_fits page
    picture(page, "services")
    phone = open_page(width: 360, height: 2400)
    phone.goto(link(own))
    phone.wait("document.querySelectorAll('#crafts tr').length === 2")
    assert_fits phone
    assert_empty page.console
  end

  it "shows an objective, the shape that follows it, and its last steps" do
    app = "run ->(_) { sleep(0.02) && [200, {}, []] }"
    own = start(app: app, workers: 1, threads: "1", settings: { slo: "p95 < 150ms", shape: { workers: 1 } }, args: ["--control", "tcp://127.0.0.1:0"])
    page = open_page(width: 1300, height: 1500)
    page.goto(link(own))
    page.wait("document.querySelector('#shape').innerText === 'Objective p95 < 150ms, no request in the last 10 s. Shape 1x1'")
    assert page.evaluate("document.querySelector('#steps').hidden")
    load = Load.new(own.address, clients: 8).start
    wait_until("a step", within: 20) { own.control("/shape")["steps"].any? { |step| step["verdict"] == "kept" } }
    page.wait("document.querySelectorAll('#trials tr').length > 0")
    step = own.control("/shape")["steps"].first
    page.click("#steps summary")
    page.wait("[...document.querySelectorAll('#trials tr')].some((row) => row.innerText.includes(#{JSON.generate(step['why'][0, 15])}))")
    page.wait("/^Objective p95 < 150ms, (holds|broken): .+ at the percentile, .+ missed it\\. Shape 1x\\d+/.test(document.querySelector('#shape').innerText)")
    assert_fits page
    picture(page, "shape")
    assert_empty page.console
  ensure
    load&.stop
  end

  it "shows a static site without workers" do
    own = start(files: { "index.html" => "home" }, workers: nil, threads: nil, environment: nil, args: ["--control", "tcp://127.0.0.1:0"])
    page = open_page
    page.goto(link(own))
    page.wait("document.querySelectorAll('#tiles strong').length === 5")
    assert_equal [true, true, true], page.evaluate("['flight', 'crew', 'handlers'].map((name) => document.getElementById(name).hidden)")
    refute_includes page.text, "Queue"
    assert_empty page.console
  end

  it "shows handlers on mruby, a line for each front thread" do
    skip "built without mruby" unless Server.mruby?
    handler = <<~'RUBY'
      lambda do |env|
        sleep 60 if env["PATH_INFO"] == "/waits"
        sleep 0.1
        raise "on purpose" if env["PATH_INFO"] == "/fails"
        [200, { "content-type" => "text/plain" }, ["hello"]]
      end
    RUBY
    settings = "front_threads = 2\n[mruby]\nheap = \"32MiB\"\nrequest_heap = \"8MiB\"\nmax_tasks = 20\n[routes]\n\"/\" = \"handler.rb\"\n"
    own = start(files: { "handler.rb" => handler }, settings: settings, workers: nil, threads: nil, environment: nil, args: ["--control", "tcp://127.0.0.1:0"])
    # Enough connections that each thread gets some, because the kernel distributes them.
    16.times { connect(own).write(request("GET", "/waits")) }
    loads = %w[/ /fails].map { |path| Load.new(own.address, clients: 1, path: path, pause: 0.01).start }
    page = open_page(width: 1100, height: 1300)
    page.goto(link(own))
    page.wait("document.querySelectorAll('#tiles strong').length === 6 && document.querySelectorAll('#vms tr').length === 2")
    page.wait("[...document.querySelectorAll('#tiles div')].some((one) => one.innerText.match(/^Handlers\\s+[\\d.,]+ \\/s\\s+[\\d.,]+ \\/s failed; \\d+ tasks?, \\d+ waiting$/) && one.className === 'bad')")
    page.wait("document.querySelector('#vms').innerText.match(/[KM]iB of 32 MiB\\s+\\d+ of 20\\s+\\d+\\s+\\d+\\s/)")
    assert_match(/^handlers on mruby · pid/, page.evaluate("document.querySelector('#about').innerText"))
    assert_equal [false, true, true], page.evaluate("['handlers', 'flight', 'crew'].map((name) => document.getElementById(name).hidden)")
    picture(page, "handlers")
    { "handlers-dark" => ["dark", 1100], "handlers-phone" => ["light", 360] }.each do |name, (scheme, width)|
      other = open_page(scheme: scheme, width: width, height: 2100)
      other.goto(link(own))
      other.wait("document.querySelectorAll('#vms tr').length === 2")
      assert_fits other
      picture(other, name)
    end
    assert_empty page.console
    loads.each(&:stop)
  end
end
