# frozen_string_literal: true

# `firebrick set`: settings of the running server change at once, and come back.

require "etc"
require "json"
require "support/case"
require "support/upgrading"

class SetTest < Case
  parallel! slow: true

  include Upgrading

  APP = 'run ->(env) { env["rack.input"]&.read; [200, { "content-type" => "text/plain" }, ["one"]] }'

  def setup
    firebrick_only
  end

  # `firebrick set`: [stdout, stderr, exit code].
  def set(own, *words) = own.command_line("set", *words, "--dir", own.dir)

  def assert_sets(own, *words)
    out, err, code = set(own, *words)
    assert_equal 0, code, -> { "#{out}#{err}#{own.report}" }
    out
  end

  def assert_refuses(own, reason, *words, code: 1)
    out, err, ended = set(own, *words)
    assert_equal code, ended, -> { "#{words}: #{out}#{err}" }
    assert_match reason, err
    assert_empty out
  end

  # The status of an upload of 100 KB: 413 above limits.max_body.
  def upload(own) = post("/", "x" * 100_000, to: own).status

  # Sends an order to the control socket as it is. Returns the status and the body.
  def order(own, body, path: "/settings")
    socket = UNIXSocket.new(Dir[File.join(own.run_dir, "firebrick", "*.sock")].first)
    socket.write("POST #{path} HTTP/1.0\r\nHost: x\r\nContent-Length: #{body.bytesize}\r\n\r\n")
    socket.write(body)
    response = socket.read
    [Integer(response[/\AHTTP\S+ (\d+)/, 1]), response.split("\r\n\r\n", 2).last]
  rescue Errno::EPIPE, Errno::ECONNRESET
    [0, ""]
  ensure
    socket&.close
  end

  it "changes a limit at once, says who and why, and takes it back" do
    own = start(app: APP)
    assert_equal "no setting is changed\n", assert_sets(own)
    assert_equal "no setting has been changed\n", assert_sets(own, "--history")
    assert_equal 200, upload(own)
    workers = workers_of(own)
    out = assert_sets(own, "limits.max_body=10KiB", "--why", "an attack")
    assert_match(/^limits\.max_body: 1GiB \(default\) -> 10KiB$/, out)
    assert_match(/^change 1 is in force: firebrick set --undo 1 takes it back$/, out)
    assert_equal 413, upload(own)
    me = Etc.getpwuid.name
    text = /limits\.max_body = 10KiB.+set by #{me} at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: an attack/
    assert_match text, assert_sets(own)
    assert_match text, own.command_line("stats", own.dir).first
    assert_match text, own.command_line("check", own.dir).first
    assert_match text, own.command_line("explain", "/", own.dir).first
    assert_match(/limits\.max_body = 10KiB: set by #{me}/, own.stats["changed_settings"].first)
    assert_equal "change 1 is undone", assert_sets(own, "--undo").lines.last.chomp
    assert_equal 200, upload(own)
    assert_match(/1GiB -> 10KiB .+; undone by #{me} .+ ago/, assert_sets(own, "--history"))
    assert_equal workers, workers_of(own), "no worker was started"
    assert_logged(/settings: change 1, set by #{me} at .+: an attack: limits\.max_body: 1GiB -> 10KiB/, on: own)
    assert_logged("settings: change 1 (limits.max_body) is over: undone by #{me}", on: own)
  end

  it "is stronger than file, variables and flags, and changes several settings together or none" do
    own = start(app: APP, settings: { limits: { max_uri: "2KiB" } }, args: ["--max-body", "50KiB"])
    assert_equal 413, upload(own)
    out = assert_sets(own, "limits.max_body=1MiB", "limits.max_uri=100")
    assert_match(/^limits\.max_body: 50KiB \(--max-body\) -> 1MiB$/, out)
    assert_match(/^limits\.max_uri: "2KiB" \(firebrick\.toml:\d+\) -> 100$/, out)
    assert_equal [200, 414], [upload(own), get("/#{'x' * 200}", to: own).status]
    assert_refuses(own, /max_headers=none: expected/, "limits.max_body=10KiB", "limits.max_headers=none")
    assert_equal 200, upload(own), "nothing of a refused change is in force"
    assert_sets(own, "--undo", "1")
    assert_equal [413, 200], [upload(own), get("/#{'x' * 200}", to: own).status]
  end

  it "tries a change, and changes nothing" do
    own = start(app: APP)
    out = assert_sets(own, "limits.max_body=10KiB", "--for", "1m", "--dry-run")
    assert_match(/^limits\.max_body: 1GiB \(default\) -> 10KiB$/, out)
    assert_match(/nothing has changed \(--dry-run\)/, out)
    assert_equal [200, { "changes" => [] }], [upload(own), own.control("/settings")]
    assert_refuses(own, /limits\.max_body=big: expected/, "limits.max_body=big", "--dry-run")
    assert_sets(own, "limits.max_body=10KiB")
    assert_match(/change 1 would be undone/, assert_sets(own, "--undo", "--dry-run"))
    assert_equal 413, upload(own)
    refute_match(/change 2|is over/, own.stderr)
  end

  it "ends a change when its time is over" do
    own = start(app: APP)
    out = assert_sets(own, "limits.max_body=10KiB", "--for", "3s")
    assert_match(/^change 1 is in force \(.+ more\): /, out)
    assert_equal 413, upload(own)
    assert wait_until(within: 20) { upload(own) == 200 }, own.report
    assert_logged("settings: change 1 (limits.max_body) is over: expired", on: own)
    assert_equal "expired", own.control("/settings")["changes"].first["end"]["how"]
  end

  it "keeps the other changes of a key when one ends" do
    own = start(app: APP)
    assert_sets(own, "limits.max_body=10KiB")
    assert_sets(own, "limits.max_body=1MiB")
    assert_equal 200, upload(own)
    assert_sets(own, "--undo", "1")
    assert_equal 200, upload(own), "the later change stays"
    assert_sets(own, "limits.max_body=20KiB", "--for", "2s")
    assert_equal 413, upload(own)
    assert wait_until(within: 20) { upload(own) == 200 }, "the one below is in force again"
    in_force = own.control("/settings")["changes"].reject { |change| change["end"] }
    assert_equal([2], in_force.map { |change| change["number"] })
  end

  it "names each mistake and its remedy" do
    own = start(app: APP)
    [
      [/limits\.max_bdy: unknown key; did you mean "limits.max_body"\?/, "limits.max_bdy=1"],
      [/limits\.max_body=much: expected/, "limits.max_body=much"],
      [/port: a running server cannot change it: .+ `firebrick upgrade` or a restart/, "port=1"],
      [/workers: it takes a reload, .+ `firebrick reload`/, "workers=2"],
      [/limits: expected a key of this table/, "limits=2"],
      [/changes no tables: change \[rate_limits\] in firebrick\.toml/, "rate_limits.login=5/m"],
      [/max_uri.+max_header_bytes/, "limits.max_uri=1MiB"],
      [/no change is in force/, "--undo"],
      [/there is no change 7; no change is in force/, "--undo", "7"]
    ].each { |reason, *words| assert_refuses(own, reason, *words) }
    [
      [/limits\.max_body: expected KEY=VALUE/, "limits.max_body"],
      [/the key is there twice/, "limits.max_body=1", "limits.max_body=2"],
      [/--for soon: expected a time such as 10m, from 1s to 365d/, "limits.max_body=1", "--for", "soon"],
      [/--why expected at most 200 characters/, "limits.max_body=1", "--why", "x" * 300],
      [/--for is for a change/, "--for", "1m"],
      [/--dry-run is for a change/, "--dry-run"],
      [/--why is for a change/, "--undo", "--why", "x"],
      [/--undo x: expected the number of one change/, "--undo", "x"],
      [/--undo 1 2: expected the number of one change/, "--undo", "1", "2"],
      [/--undo and --history are two commands/, "--undo", "--history"],
      [/--history changes nothing/, "limits.max_body=1", "--history"]
    ].each { |reason, *words| assert_refuses(own, reason, *words, code: 2) }
    assert_equal [], own.control("/settings")["changes"]
    own.signal("TERM")
    own.wait_exit
    assert_refuses(own, /no Firebrick is running|nothing listens/, "limits.max_body=1")
  end

  it "refuses to take a change back that another one needs" do
    own = start(app: APP)
    assert_sets(own, "limits.max_header_bytes=256KiB")
    assert_sets(own, "limits.max_uri=128KiB")
    assert_refuses(own, /without change 1 the settings do not fit: .+; take the later changes back first/, "--undo", "1")
    assert_sets(own, "limits.max_header_bytes=256KiB", "--for", "1s")
    assert_sets(own, "--undo", "2")
    assert_sets(own, "--undo", "1")
  end

  it "ends changes that no longer fit when another one has expired" do
    own = start(app: APP)
    assert_sets(own, "limits.max_header_bytes=256KiB", "--for", "2s")
    assert_sets(own, "limits.max_uri=128KiB")
    assert_logged("settings: change 1 (limits.max_header_bytes) is over: expired", on: own)
    assert_logged(/settings: change 2 \(limits\.max_uri\) is over: ended, because the settings do not fit/, on: own)
    assert_status 200, get("/", to: own)
  end

  it "survives reloads and their undo, and the file's value comes back afterwards" do
    own = launch_app(settings: { limits: { max_body: "1MiB" } })
    assert_sets(own, "limits.max_body=10KiB")
    deploy(own, "two")
    File.write(own.path("firebrick.toml"), File.read(own.path("firebrick.toml")).sub("1MiB", "50KiB"))
    assert_reloads(own)
    assert_equal ["two", 413], [get("/", to: own).body, upload(own)]
    assert_sets(own, "limits.max_body=1MiB")
    assert_reloads(own, "--undo")
    assert_equal ["one", 200], [get("/", to: own).body, upload(own)]
    2.times { assert_sets(own, "--undo") }
    assert_equal 200, upload(own), "the release of before has 1MiB"
    File.write(own.path("firebrick.toml"), File.read(own.path("firebrick.toml")) + "\n")
    assert_reloads(own)
    assert_equal 413, upload(own), "and the file 50KiB"
  end

  it "fails a reload whose file contradicts the changes, and says so" do
    own = launch_app
    assert_sets(own, "limits.max_uri=40KiB")
    File.write(own.path("firebrick.toml"), "[limits]\nmax_header_bytes = \"32KiB\"\n")
    _, err, code = reload(own)
    assert_equal 1, code
    assert_match(/max_uri.+\n?.*firebrick set --undo/m, err)
    assert_match(/limits\.max_uri = 40KiB/, assert_sets(own))
  end

  it "survives upgrades with the history and the rest of the time" do
    own = launch
    assert_sets(own, "limits.max_body=1MiB", "--why", "first")
    assert_sets(own, "limits.max_body=10KiB", "--for", "10s", "--why", "second")
    assert_sets(own, "limits.max_headers=50")
    assert_sets(own, "--undo")
    before = own.control("/settings")
    assert_upgrades(own)
    assert_equal before, own.control("/settings")
    assert_equal 413, upload(own)
    assert wait_until(within: 30) { upload(own) == 200 }, "it ends in the new program"
    fourth = JSON.parse(assert_sets(own, "limits.max_headers=60", "--json"))
    assert_equal 4, fourth["change"]["number"]
    assert_logged("settings: 2 in force, as before the upgrade", on: own)
  end

  it "changes settings 200 times under load without a failed request" do
    own = start(app: APP, workers: 2)
    load = Load.new(own.address, clients: 8, path: "/", pause: 0.01).start
    200.times do |number|
      status, body = order(own, JSON.generate(values: ["limits.max_headers=#{50 + number}", "timeouts.keep_alive=#{60 + number}"]))
      assert_equal 200, status, body
    end
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    assert_operator load.completed.size, :>, 200
    changes = own.control("/settings")["changes"]
    assert_equal [100, 50], [changes.size, changes.count { |change| change["end"].nil? }], "the history is bounded"
    assert_equal "replaced by change 151", changes.first["end"]["how"]
    header = ->(count) { get("/", to: own, headers: (1..count).to_h { |number| ["X-#{number}", "1"] }).status }
    assert_equal [200, 431], [header.call(240), header.call(260)]
    50.times { assert_equal 200, order(own, "", path: "/settings/undo").first }
    assert_equal 409, order(own, "", path: "/settings/undo").first
    assert_equal 431, header.call(120)
  end

  it "reaches the queue and the workers of an app, threads or fibers" do
    app = <<~'RUBY'
      run lambda { |env|
        sleep 5 if env["PATH_INFO"] == "/slow"
        [200, { "content-type" => "text/plain" }, ["done"]]
      }
    RUBY
    { threads: { threads: "1:1" }, fibers: { threads: "1:1", fibers: "1" } }.each do |name, seats|
      own = start(app: app, workers: 1, **seats)
      assert_sets(own, "timeouts.queue=500ms")
      slow = connect(own).tap { |one| one.write(request("GET", "/slow")) }
      wait_for_requests(1, on: own)
      begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      assert_status 503, get("/", to: own), name.to_s
      assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun, :<, 4, name.to_s
      slow.close
    end
  end

  it "kills a stuck worker after a changed timeouts.worker" do
    own = start(app: 'run ->(env) { sleep(env["PATH_INFO"] == "/stuck" ? 60 : 0); [200, {}, ["x"]] }', workers: 1, threads: "1:1")
    assert_sets(own, "timeouts.worker=1s")
    stuck = get("/stuck", to: own)
    assert_operator stuck.status, :>=, 500
    assert wait_until(within: 20) { get("/", to: own).status == 200 }
  end

  it "refuses hostile orders and keeps serving" do
    own = start(app: APP)
    huge = JSON.generate(values: ["limits.max_body=#{'9' * 1_000_000}"])
    keys = JSON.generate(values: (1..10_000).map { |number| "limits.k#{number}=1" })
    {
      huge => 400,
      keys => 400,
      JSON.generate(values: ["limits.max_body=1\u0000"]) => 400,
      JSON.generate(values: ["limits.max_body=1\u001b[2J"]) => 400,
      "{\"values\":[\"limits.max_body=\xFF\xFE\"]}".b => 400,
      "\x00\x01\x02" => 400,
      "[" * 100_000 => 400,
      '{"values":"limits.max_body=1"}' => 400,
      '{"values":["limits.max_body=1"],"fro":"1m"}' => 400,
      '{"values":["limits.max_body=1"],"for":"-1s"}' => 400,
      JSON.generate(values: ["#{'k' * 4000}=1"]) => 400,
      "" => 400,
      "x" * 3_000_000 => 413
    }.each do |body, expected|
      status, text = order(own, body)
      # The connection may be reset while such a body is still being sent.
      next assert_includes([413, 0], status) if expected == 413

      assert_equal expected, status, "#{body.byteslice(0, 60).inspect}: #{text}"
      assert_operator text.bytesize, :<, 10_000
      refute_match(/[\u0000\e]/, text)
    end
    assert_equal 400, order(own, '{"change":-1}', path: "/settings/undo").first
    assert_equal 409, order(own, '{"change":18446744073709551615}', path: "/settings/undo").first
    assert_equal({ "changes" => [] }, own.control("/settings"))
    assert_status 200, get("/", to: own)
  end

  it "changes a site without an app, and the plain Ruby worker's server" do
    site = start(files: { "index.html" => "x" }, workers: nil, threads: nil, environment: nil)
    assert_sets(site, "limits.max_uri=64")
    assert_equal [200, 414], [get("/", to: site).status, get("/#{'x' * 100}", to: site).status]
    pure = start(app: APP, env: { "FIREBRICK_PURE" => "1" })
    assert_sets(pure, "limits.max_body=10KiB")
    assert_equal 413, upload(pure)
  end
end
