# frozen_string_literal: true

# `firebrick top --fleet`: several servers together, as JSON, on the screen, and as a page in the real Chromium. One of them is slow, frozen,
# killed or reloaded.

require "net/http"
require "support/browser_case"
require "support/load"
require "support/terminal"

# Helpers of both classes.
module Fleets
  TOKEN = "0123456789abcdef-fleet"

  APP = <<~'RUBY'
    run lambda { |env|
      sleep Float(File.read("pause")) if File.exist?("pause")
      [200, { "content-type" => "text/plain" }, ["hello"]]
    }
  RUBY

  # A server with a control port. `pause`: the duration of its requests.
  def member(pause: nil, **options)
    files = pause ? { "pause" => pause.to_s } : {}
    start(app: APP, files:, threads: "3", args: ["--control", "tcp://127.0.0.1:0"], env: { "FIREBRICK_CONTROL_TOKEN" => TOKEN }, **options)
  end

  def control_port(own)
    own.stdout[%r{^\* Control on tcp://(127\.0\.0\.1:\d+)$}, 1] or flunk "no control port in:\n#{own.stdout}"
  end

  # Sends requests to all servers while the block runs.
  def under_load(servers, clients: 2)
    loads = servers.map { |own| Load.new(own.address, clients:, path: "/", pause: 0.01).start }
    yield
  ensure
    loads&.each(&:stop)
  end
end

class FleetTest < Case
  include Fleets

  parallel! slow: true

  def setup
    firebrick_only
    @terminals = []
  end

  def teardown
    @terminals.each(&:close)
  end

  def fleet(servers, *args, token: TOKEN)
    addresses = servers.map { |one| one.is_a?(String) ? one : control_port(one) }
    command = [Server.binary, "top", *addresses.flat_map { |address| ["--fleet", address] }, *args]
    out, err, status = Open3.capture3({ "FIREBRICK_CONTROL_TOKEN" => token }, *command, stdin_data: "", chdir: Dir.tmpdir)
    [out.force_encoding("UTF-8"), err, status.exitstatus]
  end

  def json(servers, *args, **options)
    out, err, code = fleet(servers, "--once", "--json", *args, **options)
    assert_equal ["", 0], [err, code]
    JSON.parse(out)
  end

  def live(servers, *args, **options)
    addresses = servers.map { |own| control_port(own) }
    command = [Server.binary, "top", "--fleet", *addresses, "--interval", "300ms", *args]
    Terminal.new(*command, env: { "FIREBRICK_CONTROL_TOKEN" => TOKEN }, **options).tap { |terminal| @terminals << terminal }
  end

  it "adds up what all servers did, and finds the slow one" do
    servers = [member, member, member(pause: 0.2), member]
    told = nil
    # On a busy machine other servers than the slow one may be slow for a moment, too.
    under_load(servers) do
      wait_until("the slow one, alone, at the top", within: 60) do
        told = json(servers, "--interval", "3s")
        told["servers"].map { |row| row["outlier"].to_a.grep(/p99/).any? } == [true, false, false, false]
      end
    end
    totals = told["totals"]
    assert_equal [4, 4, 0], totals.values_at("servers", "up", "unreachable")
    rows = told["servers"]
    assert_in_delta rows.sum { |row| row["requests_per_s"] }, totals["requests_per_s"], 0.01
    assert_equal rows.sum { |row| row["seats"] }, totals["seats"]
    assert_equal 12, totals["seats"]
    slow, = rows
    assert_equal control_port(servers[2]), slow["address"], "what needs attention comes first"
    assert_match(/\Ap99 \d+ ms \(median [\d.]+ ms\)\z/, slow["outlier"].first)
    assert_operator totals["total_ms"]["max"], :>=, 190
    assert_equal [{ "name" => slow["version"], "servers" => 4 }], told["versions"]
    text, = fleet(servers, "--once", "--interval", "300ms")
    assert_match(/^Firebrick fleet  4 servers up$/, text)
    servers.each { |own| assert_includes text, control_port(own) }
  end

  it "shows who does not answer and why, and nobody waits for it" do
    servers = Array.new(3) { member }
    dead, frozen, = servers
    ports = servers.map { |own| control_port(own) }
    frozen.signal("STOP")
    dead.signal("TERM")
    dead.wait_exit
    told = nil
    # A server that responds too late, because the machine is busy, does not count as up.
    wait_until("the third to respond") { (told = json(ports))["totals"]["up"] == 1 }
    assert_equal [3, 1, 2], told["totals"].values_at("servers", "up", "unreachable")
    why = told["servers"].to_h { |row| row.values_at("address", "why") }
    assert_equal ["nothing listens there", "it does not respond", nil], why.values_at(*ports)
  ensure
    frozen&.signal("CONT")
  end

  it "explains a wrong token and a list without servers, and fails when nobody answers" do
    own = member
    out, err, code = fleet([own], "--once", token: "wrong-wrong-wrong-wrong")
    assert_equal 1, code
    assert_match(/wrong control token: set FIREBRICK_CONTROL_TOKEN/, out)
    assert_equal "firebrick: no server answered\n", err
    _, err, code = fleet(["nobody"], "--once")
    assert_equal [2, "firebrick: --fleet \"nobody\": expected HOST:PORT, tcp://HOST:PORT or unix:PATH of a control server, such as 10.0.0.7:9293\n"], [code, err]
    _, err, code = fleet(["no.such.host.invalid:1"], "--once")
    assert_equal 1, code
    assert_match(/no\.such\.host\.invalid cannot be resolved/, err)
    _, err, code = fleet([], "--once", "--fleet-file", "/nowhere/list")
    assert_equal [2, "firebrick: /nowhere/list: No such file or directory (os error 2)\n"], [code, err]
  end

  it "follows its file, shows a rollout, and opens one server" do
    servers = Array.new(2) { member(workers: 1, settings: { reload: { watch: 0 } }) }
    list = File.join(Dir.mktmpdir, "servers")
    File.write(list, "# the shop\n#{control_port(servers[0])}\n")
    command = [Server.binary, "top", "--fleet-file", list, "--interval", "300ms"]
    terminal = Terminal.new(*command, env: { "FIREBRICK_CONTROL_TOKEN" => TOKEN }, columns: 100)
    @terminals << terminal
    terminal.wait_for("1 server up")
    File.write(list, "#{servers.map { |own| control_port(own) }.join("\n")}\n")
    terminal.wait_for("2 servers up", within: 20)
    _, err, code = servers[1].command_line("reload", servers[1].dir)
    assert_equal 0, code, err
    terminal.wait_for("rollout: generation 2 on 1 server, generation 1 on 1 server")
    File.write(list, "#{control_port(servers[1])}\n")
    terminal.wait_for("no longer in the list", within: 20)
    terminal.press("\e[H")
    terminal.press("\r")
    terminal.wait_for("Response time, ms")
    terminal.press("\e")
    terminal.wait_for("Firebrick fleet")
    terminal.press("q")
    assert_equal 0, terminal.wait_exit
    assert terminal.restored?
  ensure
    FileUtils.rm_rf(File.dirname(list)) if list
  end

  it "shows a server that is killed, and its successor, on the screen" do
    servers = Array.new(2) { member }
    terminal = live(servers, rows: 30, columns: 110)
    terminal.wait_for("2 servers up")
    under_load(servers) { terminal.wait_for(/^Requests +[1-9]/) }
    servers[1].signal("TERM")
    servers[1].wait_exit
    terminal.wait_for("1 of 2 servers up")
    terminal.wait_for(/✗ #{control_port(servers[1])} +nothing listens there/)
  end
end

class FleetPageTest < BrowserCase
  include Fleets

  def served(*args)
    log = File.join(Dir.mktmpdir, "log")
    pid = Process.spawn({ "FIREBRICK_CONTROL_TOKEN" => TOKEN }, Server.binary, "top", *args, "--serve", "tcp://127.0.0.1:0", out: log, err: log, chdir: Dir.tmpdir)
    link = nil
    wait_until("the link") { link = File.read(log)[/^\* Fleet: (\S+)$/, 1] } or flunk File.read(log)
    yield link
  ensure
    Process.kill("TERM", pid)
    Process.wait(pid)
    FileUtils.rm_rf(File.dirname(log))
  end

  def picture(page, name)
    folder = ENV["TEST_SCREENSHOTS"] or return
    FileUtils.mkdir_p(folder)
    page.screenshot(File.join(folder, "fleet-#{name}.png"))
  end

  def assert_fits(page)
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert_operator wide.first, :<=, wide.last, "the page is wider than the screen"
  end

  ROWS = "[...document.querySelectorAll('#servers tr[data-state]')].map((row) => row.innerText)"

  it "shows totals, the last hour, the slow server and the one that is gone" do
    servers = [member, member, member(pause: 0.2), member, member]
    gone = servers.pop
    addresses = [*servers, gone].map { |own| control_port(own) }
    gone.signal("TERM")
    gone.wait_exit
    served("--fleet", *addresses) do |link|
      page = open_page(width: 1400, height: 1300)
      under_load(servers) do
        page.goto("#{link}#token=#{TOKEN}")
        page.wait("document.querySelectorAll('#servers tr[data-state=up]').length === 4")
        page.wait("document.body.innerText.includes('not like the others: p99')", within: 30)
        page.wait("Number(document.getElementById('charts').dataset.points) >= 2", within: 40)
        picture(page, "wide")
        assert_fits(page)
      end
      rows = page.evaluate(ROWS)
      assert_match(/\A✗ #{addresses.last}\s+nothing listens there/, rows.first)
      assert_match(/\A▲ #{addresses[2]}/, rows[1])
      tiles = page.evaluate("document.getElementById('tiles').innerText")
      assert_match(/Servers up\s+4 of 5\s+1 does not answer/, tiles)
      page.evaluate("document.querySelector('#columns button').click()")
      page.wait("document.querySelector('#columns th').getAttribute('aria-sort') === 'ascending'")
      narrow = open_page(width: 400, height: 900)
      narrow.goto("#{link}#token=#{TOKEN}")
      narrow.wait("document.querySelectorAll('#servers tr[data-state=up]').length === 4")
      assert_fits(narrow)
      picture(narrow, "narrow")
    end
  end

  it "asks for the token, and says what to do when nobody answers" do
    dead = TCPServer.open("127.0.0.1", 0) { |free| "127.0.0.1:#{free.local_address.ip_port}" }
    served("--fleet", dead) do |link|
      uri = URI(link)
      assert_equal "403", Net::HTTP.get_response("127.0.0.1", "/fleet", uri.port).code
      assert_equal "403", Net::HTTP.start("127.0.0.1", uri.port) { |http| http.get("/fleet?token=#{TOKEN}", "Host" => "evil.example") }.code
      assert_equal "404", Net::HTTP.get_response("127.0.0.1", "/stats?token=#{TOKEN}", uri.port).code
      page = open_page(width: 900, height: 700)
      page.goto(link)
      page.wait("!document.getElementById('ask').hidden")
      page.evaluate("document.getElementById('token').value = '#{TOKEN}'; document.querySelector('#ask button').click()")
      page.wait("document.body.innerText.includes('No server answers. Are their control ports open')")
      picture(page, "none")
    end
  end

  it "refuses to be open to other machines without a strong token" do
    out, err, status = Open3.capture3({ "FIREBRICK_CONTROL_TOKEN" => "short" }, Server.binary, "top", "--fleet", "127.0.0.1:1", "--serve", "tcp://0.0.0.0:0")
    assert_equal [2, ""], [status.exitstatus, out]
    assert_match(%r{--serve tcp://0\.0\.0\.0:0: other machines can reach it, so FIREBRICK_CONTROL_TOKEN has to have 16 characters or more}, err)
  end
end
