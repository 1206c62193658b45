# frozen_string_literal: true

# `firebrick reload`: new code takes over without a lost request, broken code changes nothing, and the way back.

require "support/case"
require "support/load"
require "support/releases"
require "support/reloading"

class ReloadTest < Case
  parallel! slow: true

  include Reloading

  it "serves new code after a reload, step by step" do
    firebrick_only
    own = launch_app(workers: 3)
    before = workers_of(own)
    deploy(own, "two")
    out = assert_reloads(own)
    %w[booting rolling done].each { |step| assert_match(/^#{step}: /, out) }
    assert_match(/3 of 3 workers/, out)
    assert_equal "two", get("/", to: own).body
    wait_until("the old workers to end") { workers_of(own).size == 3 && (workers_of(own) & before).empty? }
    assert_logged(/reload: the new code serves/, on: own)
  end

  it "loses no request of any client, with keep-alive and without" do
    firebrick_only
    own = launch_app(workers: 2, threads: "2:2", settings: { reload: { keep: "0s", watch: "0s" } })
    loads = [true, false].map { |keep| Load.new(own.address, clients: 8, path: "/20ms", keep_alive: keep).start }
    wait_until("load") { loads.all? { |load| load.completed.size > 50 } }
    5.times do |number|
      deploy(own, "number #{number}")
      assert_reloads(own)
    end
    so_far = loads.map { |load| load.completed.size }
    wait_until("more load") { loads.zip(so_far).all? { |load, size| load.completed.size > size + 50 } }
    loads.each(&:stop)
    assert_empty loads.flat_map(&:errors)
    assert_equal [200], loads.flat_map { |load| load.completed.map(&:status) }.uniq
    assert_equal "number 4", loads.last.completed.last.body
  end

  it "lets old workers finish their requests" do
    firebrick_only
    own = launch_app(threads: "1:1")
    slow = connect(own)
    slow.write(request("GET", "/slow"))
    wait_until("the request to be served") { File.exist?(own.path("entered.log")) }
    deploy(own, "two")
    assert_reloads(own)
    assert_equal "two", get("/", to: own).body
    assert_equal "one to the end", slow.read_response("GET").body
    assert_equal "two", slow.tap { |one| one.write(request("GET", "/")) }.read_response("GET").body, "on the same connection"
  end

  it "goes back at once with --undo, and only once" do
    firebrick_only
    own = launch_app(workers: 2)
    deploy(own, "two")
    assert_reloads(own)
    assert_equal 2, templates(own).size
    # The files on disk do not matter: the old template has the old code in memory.
    File.write(own.path("config.ru"), "raise 'not loaded again'")
    assert_match(/the old code serves again/, assert_reloads(own, "--undo"))
    assert_equal "one", get("/", to: own).body
    wait_until("one template") { templates(own).size == 1 }
    out, err, code = reload(own, "--undo")
    assert_equal 1, code, out
    assert_match(/nothing to undo/, err)
  end

  it "ends the old template when reload.keep is over" do
    firebrick_only
    own = launch_app(settings: { reload: { keep: "1s" } })
    assert_reloads(own)
    wait_until("one template") { templates(own).size == 1 }
    assert_match(/nothing to undo/, reload(own, "--undo")[1])
  end

  it "is started by USR1 and by touching tmp/restart.txt" do
    firebrick_only
    own = launch_app(files: { "tmp/restart.txt" => "" })
    deploy(own, "two")
    own.signal("USR1")
    wait_until("the new code") { get("/", to: own).body == "two" }
    wait_until("the end of the reload") { own.stderr.scan("the new code serves").size == 1 }
    deploy(own, "three")
    File.utime(Time.now + 1, Time.now + 1, own.path("tmp/restart.txt"))
    wait_until("the newest code") { get("/", to: own).body == "three" }
  end

  it "does not wait for anything in development" do
    firebrick_only
    own = launch_app(environment: "development")
    deploy(own, "two")
    refute_match(/--undo/, assert_reloads(own))
    assert_equal "two", get("/", to: own).body
    wait_until("one template") { templates(own).size == 1 }
  end

  it "serves the newest of several reloads that come at a time" do
    firebrick_only
    # The app does not load before all requests have been sent.
    own = launch_app(app: "sleep 0.02 until File.exist?('gate')\n#{Reloading::APP}", files: { "gate" => "" })
    File.delete(own.path("gate"))
    runs = []
    [/^booting: /, /^waiting: /, /^waiting: /].each_with_index do |step, number|
      deploy(own, "number #{number}")
      runs << own.begin_command("reload", own.dir)
      wait_until("reload #{number} to be asked for", within: 30) { runs.last.output.match?(step) }
    end
    File.write(own.path("gate"), "")
    first, second, third = runs.each(&:wait)
    assert_equal [0, 1, 0], runs.map(&:code), -> { runs.map(&:output).join("\n") + own.report }
    assert_match(/a newer reload/, second.output)
    assert_match(/^waiting: /, third.output)
    refute_match(/^waiting: /, first.output)
    assert_equal "number 2", get("/", to: own).body
  end

  it "puts a release in force whole, although the reload that waited for its end fails" do
    firebrick_only
    own = launch_app(settings: { limits: { max_body: "1KiB" } }, leaves: %w[gate loading])
    body = "x" * 2000
    assert_status 413, post("/", body, to: own)
    File.write(own.path("firebrick.toml"), "[limits]\nmax_body = \"1MiB\"\n[reload]\nwatch = 0\n")
    File.write(own.path("config.ru"), "File.write('loading', '')\nsleep 0.02 until File.exist?('gate')\n#{Reloading::APP}")
    deploy(own, "two")
    first = own.begin_command("reload", own.dir)
    wait_until("the first reload to load the app", within: 30) { File.exist?(own.path("loading")) }
    File.write(own.path("config.ru"), "raise 'broken on purpose'")
    second = own.begin_command("reload", own.dir)
    wait_until("the second reload to wait", within: 30) { second.output.include?("waiting: ") }
    File.write(own.path("gate"), "")
    [first, second].each(&:wait)
    assert_equal [0, 1], [first, second].map(&:code), -> { first.output + second.output + own.report }
    assert_equal "two", get("/", to: own).body
    assert_status 200, post("/", body, to: own)
  end

  it "shows the reload under way, and counts those that have ended by outcome" do
    firebrick_only
    own = launch_app(workers: 2, settings: { reload: { keep: "60s", watch: "60s" } })
    outcomes = -> { own.stats["reloads"]["counts"].select { |_, count| count.positive? } }
    assert_equal [{}, nil, nil], [outcomes.call, *own.stats["reloads"].values_at("running", "last")]
    watched = Thread.new { reload(own) }
    wait_until("the reload to watch") { own.stats.dig("reloads", "running", "stage") == "watching" }
    assert_match(/\Aone worker serves up to 25 % of the requests for [456]\d s more\z/, own.stats.dig("reloads", "running", "text"))
    assert_equal [0, 1], own.stats["workers"].map { |worker| worker["phase"] }.uniq.sort
    top, _, code = own.command_line("top", own.dir, "--once")
    assert_equal [0, true], [code, top.include?("Reload watching: one worker serves up to 25 % of the requests for ")], top
    assert_match(/^reload +watching: one worker/, own.command_line("stats", own.dir).first)
    own.command_line("reload", own.dir, "--undo")
    assert_equal 1, watched.value.last
    assert_equal [{ "undone" => 1 }, nil], [outcomes.call, own.stats["reloads"]["running"]]
    File.write(own.path("config.ru"), "raise 'broken on purpose'")
    assert_equal 1, reload(own).last
    assert_equal({ "undone" => 1, "failed" => 1 }, outcomes.call)
    assert_equal "failed", own.stats.dig("reloads", "last", "outcome")
    assert_match(/broken on purpose/, own.stats.dig("reloads", "last", "text"))
    assert_match(/^last reload +failed, \d+ s ago: .*broken on purpose/, own.command_line("stats", own.dir).first)
  end

  it "shows the phase, and counts both templates' memory" do
    firebrick_only
    own = launch_app(workers: 2, settings: { reload: { keep: "60s" } })
    before = own.stats
    assert_equal [0, [0, 0]], [before["phase"], before["workers"].map { |worker| worker["phase"] }]
    assert_reloads(own)
    wait_until("the old workers to end") { own.stats["workers"].map { |worker| worker["phase"] } == [1, 1] }
    after = own.stats
    assert_equal [1, before["ruby"]], [after["phase"], after["ruby"]]
    assert_operator after["rss_bytes"], :>, before["rss_bytes"] + (4 << 20), "the second template"
  end

  it "puts limits and timeouts of the settings in force" do
    firebrick_only
    own = launch_app(settings: { limits: { max_body: "1KiB" } })
    body = "x" * 2000
    assert_status 413, post("/", body, to: own)
    File.write(own.path("firebrick.toml"), "[limits]\nmax_body = \"1MiB\"\n[reload]\nwatch = 0\n")
    assert_reloads(own)
    assert_status 200, post("/", body, to: own)
    File.write(own.path("firebrick.toml"), "[limits]\nmax_bodi = \"1MiB\"\n")
    out, err, code = reload(own)
    assert_equal 2, code, out
    assert_match(/max_bodi/, err)
    own.signal("USR1")
    assert_logged(/reload failed.*max_bodi/, on: own)
    assert_status 200, post("/", body, to: own)
  end

  # A request that computes until another one is served, and reports whether one was.
  SPIN = <<~'RUBY'
    text = { "content-type" => "text/plain" }
    seen = false
    run lambda { |env|
      case env["PATH_INFO"]
      when "/see" then seen = true; [200, text, ["seen"]]
      when "/spin"
        seen = false
        over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + env["QUERY_STRING"].to_f
        File.write("entered.log", "yes")
        nil until seen || Process.clock_gettime(Process::CLOCK_MONOTONIC) > over
        [200, text, [seen ? "shared" : "alone"]]
      when "/block"
        File.open(__FILE__) do |file|
          file.flock(File::LOCK_EX)
          Thread.new { sleep 0.3; file.flock(File::LOCK_UN) }
          File.open(__FILE__) { |again| again.flock(File::LOCK_EX) }
        end
        [200, text, ["mine"]]
      else [200, text, ["fine"]]
      end
    }
  RUBY

  it "gives new workers a new slice and limit of blocking calls" do
    firebrick_only
    skip "the flag of TEST_FIBERS overrides the setting" if ENV["TEST_FIBERS"]
    own = launch_app(app: SPIN, threads: "1:1", settings: { fibers: 10, rack: { fiber_slice: "off", blocking_call: "off" } })
    assert_equal "alone", spin(own, 1)
    get("/block", to: own)
    File.write(own.path("firebrick.toml"), "fibers = 10\n[rack]\nblocking_call = \"50ms\"\n[reload]\nwatch = 0\n")
    assert_reloads(own)
    assert_equal "shared", spin(own, 30), "the slice has its default again"
    refute_match(/blocking call of/, own.stderr)
    get("/block", to: own)
    assert_logged(/blocking call of \d+ ms in .*flock/, on: own)
  end

  # Returns the response of `/spin`, while another request comes in.
  def spin(own, seconds)
    FileUtils.rm_f(own.path("entered.log"))
    spinning = connect(own).write(request("GET", "/spin?#{seconds}"))
    wait_until("the request to compute") { File.exist?(own.path("entered.log")) }
    assert_equal "seen", get("/see", to: own).body
    spinning.read_response("GET").body
  end

  it "says so when there is no server, and when there is no app" do
    firebrick_only
    site = start(files: { "index.html" => "hello", "static.json" => "{}" })
    _, err, code = reload(site)
    assert_equal 1, code
    assert_match(/no app to reload/, err)
    site.signal("TERM")
    site.wait_exit
    _, err, code = reload(site)
    assert_equal 1, code
    assert_match(/no Firebrick is running/, err)
  end
end

# A deploy like Capistrano's: releases, and a link to the current one.
class ReloadReleasesTest < Case
  parallel! slow: true

  include Reloading
  include Releases

  it "follows the current link anew, although the old release is gone" do
    firebrick_only
    root = File.realpath(Dir.mktmpdir("firebrick-releases"))
    %w[1 2].each { |number| release(root, number) }
    link(root, "1")
    own = Server.new(directory: File.join(root, "current"), args: ["--reload-watch", "0s"])
    @own_servers << own.start
    assert_equal "release 1", get("/", to: own).body
    link(root, "2")
    FileUtils.rm_rf(File.join(root, "releases/1"))
    assert_reloads(own)
    assert_equal "release 2 in #{root}/releases/2", get("/dir", to: own).body
  ensure
    FileUtils.rm_rf(root)
  end

  it "serves the files, rules and folders of the release whose code serves, and forgets the old one" do
    firebrick_only
    released do |root|
      %w[1 2].each do |number|
        settings = "[files]\npublic = \"always\"\n[sendfile]\n\"/inner/\" = \"files\"\n[reload]\nwatch = \"0s\"\n"
        release(root, number, { "public/robots.txt" => "robots #{number}", "public/only-#{number}.txt" => "asset #{number}", "files/a.txt" => "sent #{number}", "firebrick.toml" => settings })
      end
      own = serve_link(root)
      assert_equal ["robots 1", "asset 1", "sent 1"], bodies(own, "/robots.txt", "/only-1.txt", "/sendfile")
      link(root, "2")
      assert_equal "robots 1", get("/robots.txt", to: own).body, "a release is one thing"
      assert_reloads(own)
      FileUtils.rm_rf(File.join(root, "releases/1"))
      wait_until("all threads") { Array.new(20) { get("/robots.txt", to: own).body }.uniq == ["robots 2"] }
      assert_equal ["asset 2", "sent 2"], bodies(own, "/only-2.txt", "/sendfile")
      assert_equal "release 2", get("/only-1.txt", to: own).body, "it is the app's"
    end
  end

  it "takes the static.json of the release, and refuses one that is wrong before anything of it serves" do
    firebrick_only
    released do |root|
      rules = ->(number) { JSON.generate(root: "public", headers: { "/**" => { "X-Release" => number } }) }
      %w[1 2].each { |number| release(root, number, { "public/a.txt" => "file #{number}", "static.json" => rules[number] }) }
      release(root, "3", { "public/a.txt" => "file 3", "static.json" => "{ no" })
      own = serve_link(root, "--reload-watch", "0s")
      assert_equal ["file 1", "1"], [get("/a.txt", to: own).body, get("/a.txt", to: own)["x-release"]]
      link(root, "3")
      _, err, code = reload(own)
      assert_equal 1, code
      assert_match(/static\.json/, err)
      assert_equal ["file 1", "release 1"], bodies(own, "/a.txt", "/")
      link(root, "2")
      assert_reloads(own)
      wait_until("all threads") { Array.new(20) { get("/a.txt", to: own).body }.uniq == ["file 2"] }
      assert_equal "2", get("/a.txt", to: own)["x-release"]
    end
  end

  it "starts a service again in the release that serves, wherever the link leads by then" do
    firebrick_only
    released do |root|
      starts = File.join(root, "starts.log")
      command = "ruby service.rb"
      service = "File.write(#{starts.inspect}, \"\#{Process.pid} \#{Dir.pwd[/\\d+\\z/]} \#{NUMBER}\\n\", mode: 'a')\nsleep\n"
      %w[1 2].each { |number| release(root, number, { "service.rb" => "NUMBER = #{number}\n#{service}", "firebrick.toml" => "[services]\njobs = #{command.inspect}\n" }) }
      own = serve_link(root, "--reload-watch", "0s")
      started = ->(count) { wait_until("#{count} starts", within: 30) { File.exist?(starts) && File.readlines(starts).then { |lines| lines.last.split if lines.size == count } } }
      pid, *first = started[1]
      assert_equal %w[1 1], first
      link(root, "2")
      Process.kill("KILL", pid.to_i)
      pid, *again = started[2]
      assert_equal %w[1 1], again, "the link leads to release 2, which does not serve yet"
      assert_reloads(own)
      _, *moved = started[3]
      assert_equal %w[2 2], moved
      refute_equal pid, File.readlines(starts).last.split.first
    end
  end

  it "loses the way to files of neither release while it is undone" do
    firebrick_only
    released do |root|
      always = "[files]\npublic = \"always\"\n"
      %w[1 2].each { |number| release(root, number, { "public/robots.txt" => "robots #{number}", "firebrick.toml" => always }) }
      own = serve_link(root, "--reload-watch", "0s")
      link(root, "2")
      assert_reloads(own)
      wait_until("the new files") { Array.new(20) { get("/robots.txt", to: own).body }.uniq == ["robots 2"] }
      assert_reloads(own, "--undo")
      wait_until("the old files") { Array.new(20) { get("/robots.txt", to: own).body }.uniq == ["robots 1"] }
      assert_equal "release 1", get("/", to: own).body
    end
  end

  it "serves the files of a release that is being tried, because its workers refer to them" do
    firebrick_only
    released do |root|
      settings = "[files]\npublic = \"always\"\n[reload]\nwatch = \"30s\"\nshare = 1\nprobe = [\"/\"]\n"
      %w[1 2].each { |number| release(root, number, { "public/app-#{number}.css" => "style #{number}", "public/same.txt" => number, "firebrick.toml" => settings }) }
      own = serve_link(root)
      link(root, "2")
      running = own.begin_command("reload", own.dir)
      wait_until("the trial", within: 30) { running.output.match?(/^watching: /) }
      assert_equal ["style 1", "style 2", "1"], bodies(own, "/app-1.css", "/app-2.css", "/same.txt")
      assert_reloads(own, "--undo")
      assert_equal 1, running.wait.code, running.output
      wait_until("all threads") { Array.new(20) { get("/app-2.css", to: own).body }.uniq == ["release 1"] }
      assert_equal ["style 1", "1"], bodies(own, "/app-1.css", "/same.txt")
    end
  end

  it "reads no part of a release again while its puma.rb is evaluated, wherever the link leads by then" do
    firebrick_only
    released do |root|
      %w[1 2 3].each do |number|
        puma = "sleep 0.02 until File.exist?(File.join(#{root.inspect}, 'go-#{number}'))\nthreads #{number}, #{number}\n"
        release(root, number, { "public/a.txt" => "file #{number}", "config/puma.rb" => puma, "config/puma/production.rb" => puma })
      end
      FileUtils.touch(File.join(root, "go-1"))
      own = serve_link(root, "--public", "always", "--reload-watch", "0s", threads: nil)
      assert_equal ["release 1", "file 1"], bodies(own, "/", "/a.txt")
      link(root, "2")
      running = own.begin_command("reload", own.dir)
      wait_until("the template to evaluate its puma.rb") { templates(own).size == 2 }
      link(root, "3")
      FileUtils.rm_rf(File.join(root, "releases/1"))
      %w[2 3].each { |number| FileUtils.touch(File.join(root, "go-#{number}")) }
      assert_equal 0, running.wait.code, running.output
      wait_until("all threads") { Array.new(20) { get("/a.txt", to: own).body }.uniq == ["file 2"] }
      assert_equal "release 2 in #{root}/releases/2", get("/dir", to: own).body
    end
  end

  # Release 1 can be held up while it is loaded, as a large app is slow where others are loaded beside it.
  SLOW = <<~'RUBY'
    dir = __dir__
    sleep 0.02 while File.exist?(File.join(dir, "hold"))
    run ->(_) { [200, {}, [File.basename(dir)]] }
  RUBY

  { "a reload" => [], "an undo" => ["--undo"] }.each do |name, undone|
    it "does not fall back to the code that a template was loading before #{name}, when the template dies" do
      firebrick_only
      released do |root|
        settings = "[files]\npublic = \"always\"\n[reload]\nwatch = \"0s\"\nkeep = \"60s\"\n"
        %w[1 2].each { |number| write_release(root, number, "config.ru" => SLOW, "firebrick.toml" => settings, "public/asset.txt" => number) }
        old, new = undone.empty? ? %w[1 2] : %w[2 1]
        hold = ->(number) { FileUtils.touch(File.join(root, "releases", number, "hold")) }
        go = ->(number) { FileUtils.rm(File.join(root, "releases", number, "hold")) }
        link(root, "1")
        own = serve_link(root, workers: 2)
        first = templates(own).first.pid
        link(root, "2")
        if undone.empty?
          %w[1 2].each(&hold)
          running = own.begin_command("reload", own.dir)
          second = wait_until("the new template") { (templates(own).map(&:pid) - [first]).first }
          Process.kill("KILL", first)
          wait_until("a template in place of the old one") { (templates(own).map(&:pid) - [first, second]).any? }
          go["2"]
          assert_equal 0, running.wait.code, running.output
          dies = second
        else
          assert_reloads(own)
          hold["2"]
          second = (templates(own).map(&:pid) - [first]).first
          Process.kill("KILL", second)
          wait_until("a template in place of the new one") { (templates(own).map(&:pid) - [first, second]).any? }
          assert_reloads(own, *undone)
          dies = first
        end
        Process.kill("KILL", dies)
        go[old]
        # The successor loads the code in force, and its workers replace those that are left.
        wait_until("another template") { templates(own).then { |all| all.size == 1 && all.first.pid != dies && workers_of(own).size == 2 } }
        20.times { assert_equal [new, new], bodies(own, "/", "/asset.txt") }
      end
    end
  end

  # Paths that are opened without an app, below a link named `current`.
  { "a folder below the link" => ["current/dist", "dist/index.html", "/"],
    "the link itself" => ["current", "index.html", "/"],
    "a folder of a mounted volume" => ["..data", "index.html", "/"] }.each do |name, (target, file, path)|
    it "follows #{name} that is served without an app" do
      firebrick_only
      released do |root|
        %w[1 2].each { |number| release(root, number, { file => "files #{number}" }, app: nil) }
        File.symlink("current", File.join(root, "..data")) if target == "..data"
        own = serve_link(root, target: target)
        assert_equal "files 1", get(path, to: own).body
        link(root, "2")
        FileUtils.rm_rf(File.join(root, "releases/1"))
        wait_until("the new files") { Array.new(10) { get(path, to: own).body }.uniq == ["files 2"] }
      end
    end
  end

  it "follows the file of a handler below the link" do
    mruby_only
    released do |root|
      handler = ->(number) { "->(env) { [200, {}, ['handler #{number}']] }" }
      %w[1 2].each { |number| release(root, number, { "h.rb" => handler[number], "firebrick.toml" => "[routes]\n\"/\" = { mruby = \"h.rb\" }\n" }, app: nil) }
      own = serve_link(root)
      assert_equal "handler 1", get("/", to: own).body
      link(root, "2")
      FileUtils.rm_rf(File.join(root, "releases/1"))
      wait_until("the new handler") { Array.new(10) { get("/", to: own).body }.uniq == ["handler 2"] }
    end
  end

  it "leaves the Gemfile of the old release behind" do
    firebrick_only
    app = <<~'RUBY'
      kept = ENV.slice("RUBYLIB", "BUNDLER_ORIG_RUBYLIB").sort.inspect
      run ->(_) { [200, {}, [kept]] }
    RUBY
    own = start(app: app, args: ["--reload-watch", "0s"],
                env: { "RUBYLIB" => "/nonexistent/old", "BUNDLER_ORIG_RUBYLIB" => "/nonexistent/before" })
    assert_match(%r{/nonexistent/old}, get("/", to: own).body)
    assert_reloads(own)
    body = get("/", to: own).body
    assert_match(%r{"RUBYLIB", "/nonexistent/before"}, body)
    refute_match(/ORIG/, body)
  end

  private

  APP_OF_A_RELEASE = <<~'RUBY'
    run lambda { |env|
      number = File.basename(__dir__)
      case env["PATH_INFO"]
      when "/dir" then [200, {}, ["release #{number} in #{Dir.pwd}"]]
      when "/sendfile" then [200, { "x-accel-redirect" => "/inner/a.txt" }, []]
      else [200, {}, ["release #{number}"]]
      end
    }
  RUBY

  def release(root, number, files = {}, app: APP_OF_A_RELEASE)
    files = { "config.ru" => app }.merge(files) if app
    write_release(root, number, files)
  end

  # A server of the folder that +target+ points to; the link points to the first release.
  def serve_link(root, *args, target: "current", **options)
    link(root, "1")
    own = Server.new(directory: File.join(root, target), args: args, **options)
    @own_servers << own.start
    own
  end

  def bodies(own, *paths) = paths.map { |path| get(path, to: own).body }
end
