# frozen_string_literal: true

# Situations that operators meet: unwritable directories, signals and their effects, one log in one format, floods of failures, errors at boot.

require "json"
require "time"
require "support/case"

class OperatingTest < Case
  parallel!

  APP = <<~'RUBY'
    run lambda { |env|
      raise "boom" if env["PATH_INFO"] == "/raise"
      sleep 5 if env["PATH_INFO"] == "/slow"
      [200, { "content-type" => "text/plain" }, ["hello"]]
    }
  RUBY

  def setup
    firebrick_only
  end

  # Runs `firebrick check` in the folder of a server that does not run. Returns output, errors, exit code.
  def check(own, env: {})
    Open3.capture3(own.send(:environment).merge(env), Server.binary, "check", own.dir, chdir: own.dir).then { |out, err, status| [out, err, status.exitstatus] }
  end

  def prepared(**options)
    own = Server.new(**options)
    yield own
  ensure
    FileUtils.remove_entry(own.base) if own
  end

  def entries(text)
    text.lines.filter_map { |line| JSON.parse(line) if line.start_with?("{") }
  end

  it "serves where the control socket has no place, and says what to do" do
    own = start(app: APP, env: { "XDG_RUNTIME_DIR" => "/proc/self/none" })
    assert_status 200, get("/", to: own)
    assert_logged(%r{warning: no control socket at /proc/self/none/firebrick/\h+\.sock: .*XDG_RUNTIME_DIR.*--control}, on: own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
  end

  it "refuses to start without the place of a control socket that was asked for" do
    own = Server.new(app: APP)
    _, err, code = own.command_line("serve", "-p", "0", "--control", "unix:///proc/self/none/c.sock")
    assert_equal 1, code
    assert_match(%r{/proc/self/none}, err)
    FileUtils.remove_entry(own.base)
  end

  {
    "a folder of temporary files that is missing" => [{}, { "TMPDIR" => "/nope" }, %r{/nope.*TMPDIR}m],
    "a pid file in a missing folder" => [{}, { "PIDFILE" => "/nope/x" }, %r{pid file /nope/x cannot be written}],
    "an access log that is a folder" => [{ log: { access: "/etc" } }, {}, %r{access log /etc: }],
    "an error log that is a folder" => [{ log: { error: "/etc" } }, {}, %r{error log /etc: }],
    "an access log in a missing folder" => [{ log: { access: "/nope/a.log" } }, {}, %r{no folder /nope}],
    "a service whose program is missing" => [{ services: { jobs: "no-such-program --now" } }, {}, /firebrick\.toml:\d+.*"jobs".*no program "no-such-program"/],
    "a service whose path is missing" => [{ services: { jobs: "bin/none" } }, {}, %r{no program "bin/none"}]
  }.each do |what, (settings, env, expected)|
    it "fails in check for #{what}" do
      prepared(app: APP, settings:) do |own|
        out, err, code = check(own, env:)
        assert_equal 1, code, out + err
        assert_match expected, err
        refute_path_exists "/nope"
      end
    end
  end

  {
    "an address of another machine" => ["tcp://10.255.255.1:1", /this machine has no such address/],
    "a name that no machine has" => ["tcp://no-such-host.invalid:1", /give an address of this machine/],
    "a socket in a missing folder" => ["unix:///nope/x.sock", /create the folder/],
    "a socket in the place of a file" => ["unix:///etc/passwd", /not a socket; remove it/]
  }.each do |what, (address, remedy)|
    it "fails in check and at the start for #{what}" do
      prepared(app: APP) do |own|
        %w[check serve].each do |command|
          out, err, code = own.command_line(command, "-b", address)
          assert_equal 1, code, out + err
          assert_match(/cannot listen on #{address}: .*#{remedy}/, err)
        end
      end
    end
  end

  it "says in check that a port is in use, which may be by this server" do
    own = start(app: APP)
    out, _, code = own.command_line("check", "-b", "tcp://127.0.0.1:#{own.port}")
    assert_equal 0, code, out
    assert_match(/tcp:\S+:#{own.port} is in use by process #{own.pid}/, out)
  end

  it "keeps large bodies in memory where no folder can be written, and says so" do
    own = start(app: 'run ->(env) { [200, {}, [env["rack.input"].read.sum.to_s]] }', env: { "TMPDIR" => "/nope" })
    assert_equal ("x" * 3_000_000).sum.to_s, ask(request("POST", "/", {}, "x" * 3_000_000), to: own).body
    assert_logged(%r{warning: temporary files cannot be written: /nope: .*; large bodies stay in memory.*set TMPDIR}, on: own)
  end

  it "shows no secret that was typed in the wrong place" do
    secret = "s3cr3tS3CR3T"
    { "config/puma.rb" => ["activate_control_app 'tcp://127.0.0.1:77', { auth_tokn: '#{secret}' }", "bind 'http://u:#{secret}@127.0.0.1'",
                           "ssl_bind '::', 1, { keypem: \"-----BEGIN PRIVATE KEY-----\\n#{secret}\\n\" }",
                           "activate_control_app('tcp://127.0.0.1:77', auth_token: '#{secret}').nope"],
      "firebrick.toml" => ["port = 'redis://:#{secret}@h'", "control_tokn = '#{secret}'", "[routes]\n'/a' = 'http://u:#{secret}@h:1'"],
      "static.json" => [%({"proxies":{"/a/":{"origin":"htp://u:#{secret}@h"}}})] }.each do |file, texts|
      texts.each do |text|
        prepared(app: APP, files: { file => text }) do |own|
          out, err, = check(own)
          refute_includes out + err, secret, text
          assert_includes out + err, "(not shown)", text unless text.include?("control_tokn")
        end
      end
    end
  end

  it "passes check where everything is in its place" do
    prepared(app: APP, settings: { log: { access: "a.log", error: "e.log" }, services: { jobs: "sleep 100" } }) do |own|
      out, err, code = check(own, env: { "PIDFILE" => own.path("own.pid") })
      assert_equal [0, ""], [code, err], out
      refute_path_exists own.path("a.log")
      refute_path_exists own.path("own.pid")
    end
  end

  it "logs each signal with what it does" do
    own = start(app: APP, workers: 2)
    { "TTIN" => /TTIN: one worker more.*workers: 2 → 3 by signal/m, "TTOU" => /TTOU: one worker fewer.*workers: 3 → 2 by signal/m,
      "HUP" => /HUP: the logs are opened again/, "WINCH" => /WINCH: no effect/, "PWR" => /PWR: no effect here/,
      "USR1" => /USR1: loading the app again/ }.each do |name, expected|
      own.signal(name)
      assert_logged(expected, on: own)
    end
    assert_status 200, get("/", to: own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit(within: 40)
    assert_match(/TERM: ending: requests in progress have [\d.]+ s \(timeouts\.shutdown\)/, own.stderr)
  end

  it "logs signals of a server without an app" do
    own = start(files: { "public/index.html" => "x" }, args: ["--root", "public"], workers: nil)
    own.signal("TTIN")
    assert_logged(/TTIN: no effect, there is no app/, on: own)
    own.signal("INT")
    assert_equal 0, own.wait_exit
    assert_match(/INT: ending/, own.stderr)
  end

  it "writes what the server and the app have to say as one stream of JSON" do
    own = start(app: APP, settings: { log: { error: "errors.log", format: "json" } })
    assert_status 500, get("/raise", to: own, headers: { "X-Request-Id" => "given-id" })
    own.signal("HUP")
    log = own.path("errors.log")
    assert(wait_until { entries(File.read(log)).any? { |entry| entry["message"].include?("HUP") } })
    lines = File.readlines(log)
    assert_equal lines.length, entries(lines.join).length, "a line is no JSON:\n#{lines.join}"
    raised = entries(lines.join).find { |entry| entry["message"].include?("RuntimeError: boom (GET /raise)") }
    assert_equal %w[error given-id], raised&.values_at("level", "request_id"), lines.join
    assert(entries(lines.join).all? { |entry| Time.iso8601(entry["time"]) && entry["pid"].positive? && entry["level"] })
    refute_includes own.stderr, "boom"
  end

  it "writes to the file that took the place of one that was moved away" do
    own = start(app: APP, settings: { log: { error: "errors.log" } }, leaves: ["errors.log.1"])
    get("/raise", to: own, headers: { "X-Request-Id" => "first" })
    assert(wait_until { File.read(own.path("errors.log")).match?(/^\[\d{4}-\S+\] firebrick\[\d+\]: error: worker .*boom.*\(request first\)$/) })
    File.rename(own.path("errors.log"), own.path("errors.log.1"))
    own.signal("HUP")
    assert(wait_until { File.exist?(own.path("errors.log")) })
    get("/raise", to: own, headers: { "X-Request-Id" => "second" })
    assert(wait_until { File.read(own.path("errors.log")).include?("(request second)") })
  end

  it "counts a flood of refusals instead of writing a line for each" do
    own = start(app: APP, threads: "1:1", settings: { limits: { max_queue: 1 } })
    slow = connect(own).write(request("GET", "/slow"))
    wait_for_requests(1, on: own)
    statuses = Array.new(4) do |n|
      Thread.new { Array.new(75) { |one| get("/#{n}/#{one}?#{'q' * 3000}", to: own).status } }
    end.flat_map(&:value)
    assert_operator statuses.count(503), :>, 200
    lines = own.stderr.lines.grep(/: error: 503 for GET/)
    assert_operator lines.length, :<=, 45, "of two threads"
    assert(lines.all? { |line| line.length < 1000 })
    assert_match(/q\.\.\. \(30\d\d bytes\): /, lines.first)
    assert_logged(/503: \d+ more, not shown|and \d+ more like this/, on: own) if ENV["SLOW"]
    assert_status 200, slow.read_response("GET")
  end

  it "shows an app's own lines of a boot error before those of gems" do
    gem_code = "module Deep; def self.down(n) = n.zero? ? yield : down(n - 1) { yield }; end"
    own = Server.new(app: "require_relative 'config/application'\nrun ->(env) { [200, {}, []] }\n",
                     files: { "vendor/bundle/gems/deep-1.0.0/lib/deep.rb" => gem_code,
                              "config/application.rb" => "require_relative '../vendor/bundle/gems/deep-1.0.0/lib/deep'\nDeep.down(30) { missing_thing }\n" })
    _, err, code = own.command_line("serve", "-p", "0")
    assert_equal 1, code
    frames = err.lines.grep(/^    \S+:\d+:in/).map(&:strip)
    assert_match(%r{\Aconfig/application\.rb:2:in}, frames[0], err)
    assert_match(/\A(config\.ru:1|config.application\.rb:2)/, frames[1], err)
    assert_match(/\(and \d+ lines of others: .*deep \d+.*FIREBRICK_ALL_FRAMES=1 shows them\)/, err)
    refute_match(/deep\.rb:1/, err)
    assert_match(/^      > 2 \| Deep\.down\(30\) \{ missing_thing \}$/, err, "the source")
    _, full, = Open3.capture3(own.send(:environment).merge("FIREBRICK_ALL_FRAMES" => "1"), Server.binary, "serve", own.dir, "-p", "0")
    assert_operator full.scan("deep.rb:1").length, :>, 30
    File.write(own.path("config/application.rb"), "module Shop\n  def self.sell(\nend\n")
    _, err, = own.command_line("serve", "-p", "0")
    assert_match(/SyntaxError/, err)
    assert_match(/^ +> [23] \| /, err, "the source of a file with a mistake, by us or by Ruby")
  ensure
    FileUtils.remove_entry(own.base)
  end
end
