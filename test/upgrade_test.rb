# frozen_string_literal: true

# `firebrick upgrade`: a new program takes over the listening sockets, and no connection is lost.

require "support/case"
require "support/upgrading"

class UpgradeTest < Case
  parallel! slow: true

  include Upgrading

  def setup
    firebrick_only
  end

  it "hands over to a new program, step by step" do
    own = launch(workers: 2, args: ["--pidfile", "server.pid"])
    before = own.pid
    deploy(own, "two")
    out = assert_upgrades(own)
    ["starting", "booting", "handing over", "done"].each { |step| assert_match(/^#{step}: /, out) }
    refute_equal before, own.pid
    assert_equal "two", get("/", to: own).body
    assert_equal "#{own.pid}\n", File.read(own.path("server.pid"))
    stats = own.stats
    assert_equal [own.pid, 2], [stats["pid"], stats["workers"].size]
    counts, running, last = stats["upgrades"].values_at("counts", "running", "last")
    assert_equal [{ "done" => 1, "failed" => 0 }, nil], [counts, running]
    assert_equal ["done", "process #{own.pid} took over from process #{before}"], last.values_at("outcome", "text")
    assert_operator last["took_s"], :>, 0
    assert_match(/^last upgrade done, \d+ s ago: process #{own.pid} took over/, own.command_line("stats", own.dir).first)
    assert_match(/^pid +#{own.pid}$/, own.command_line("status", own.dir).first)
    stopped, = own.command_line("stop", own.dir)
    assert_match(/process #{own.pid} has ended/, stopped)
    refute own.running?
  end

  it "loses no request of any client, with keep-alive and without, in three upgrades" do
    own = launch(workers: 2, threads: "2:2", args: ["--front-threads", "2"])
    loads = [true, false].map { |keep| Load.new(own.address, clients: 4, path: "/20ms", keep_alive: keep).start }
    wait_until("load") { loads.all? { |load| load.completed.size > 20 } }
    3.times do |number|
      deploy(own, "number #{number}")
      assert_upgrades(own)
    end
    so_far = loads.map { |load| load.completed.size }
    wait_until("more load") { loads.zip(so_far).all? { |load, size| load.completed.size > size + 20 } }
    loads.each(&:stop)
    assert_empty loads.flat_map(&:errors)
    assert_equal [200], loads.flat_map { |load| load.completed.map(&:status) }.uniq
    assert_equal "number 2", loads.last.completed.last.body
  end

  it "moves services to the new program, without waiting for the last request" do
    own = launch(threads: "1:1", app: <<~'RUBY', settings: { services: { jobs: ["sh", "-c", "echo $$ >> ../jobs.log; exec sleep 1000"] } })
      Firebrick.service("block") do |service|
        File.write("../blocks.log", "#{Process.pid}\n", mode: "a")
        service.wait
      end
      run lambda { |env|
        File.write("entered.log", "yes") if env["PATH_INFO"] == "/wait"
        sleep 0.02 until env["PATH_INFO"] != "/wait" || File.exist?("../finish.log")
        [200, { "content-type" => "text/plain" }, [Process.ppid.to_s]]
      }
    RUBY
    pids = ->(file) { File.exist?(own.path("../#{file}.log")) ? File.readlines(own.path("../#{file}.log")).map(&:to_i) : [] }
    first, block = wait_until("services") { [pids.call("jobs").first, pids.call("blocks").first].then { |both| both if both.all? } }
    slow = connect(own)
    slow.write(request("GET", "/wait"))
    wait_until("the request to be served") { File.exist?(own.path("entered.log")) }
    out = assert_upgrades(own, follow: false)
    wait_until("the old services to end") { [first, block].none? { |pid| Processes.alive?(pid) } }
    %w[jobs blocks].each do |file|
      second = wait_until("the new service") { pids.call(file)[1] }
      assert_path_exists "/proc/#{second}"
      assert_equal 2, pids.call(file).size
    end
    File.write(own.path("../finish.log"), "")
    assert_status 200, slow.read_response("GET")
    own.follow(new_pid(out))
  end

  it "lets the old program finish its requests, and waits for its end before another upgrade" do
    own = launch(threads: "1:1", app: <<~RUBY)
      run lambda { |env|
        File.write("entered.log", "yes") if env["PATH_INFO"] == "/wait"
        sleep 0.02 until env["PATH_INFO"] != "/wait" || File.exist?("../finish.log")
        [200, { "content-type" => "text/plain" }, [Process.ppid.to_s]]
      }
    RUBY
    slow = connect(own)
    slow.write(request("GET", "/wait"))
    wait_until("the request to be served") { File.exist?(own.path("entered.log")) }
    out = assert_upgrades(own, follow: false)
    first = own.pid
    assert Processes.alive?(first)
    second = Thread.new { upgrade(own) }
    assert_logged(/upgrade: the program from before the last upgrade finishes its requests/, on: own)
    upgrades = JSON.parse(own.command_line("stats", own.dir, "--json").first)["upgrades"]
    assert_equal ["waiting", { "done" => 1, "failed" => 0 }], [upgrades["running"]["stage"], upgrades["counts"]]
    again, err, code = upgrade(own)
    assert_equal [1, ""], [code, again]
    assert_match(/another upgrade is under way/, err)
    FileUtils.touch(File.join(own.base, "finish.log"))
    response = slow.read_response("GET")
    assert_equal [200, "close"], [response.status, response["connection"]]
    own.follow(new_pid(out))
    out, err, code = second.value
    assert_equal 0, code, -> { out + err }
    assert_match(/^waiting: /, out)
    own.follow(new_pid(out))
  end

  it "resets no connection that waits, though the old program is stopped and killed before the new one is ready" do
    own = launch_gated(args: ["--pidfile", "server.pid", "--front-threads", "2"], exit_code: :any,
                       binds: ["tcp://127.0.0.1:0", "unix://app.sock"])
    close_gate(own)
    deploy(own, "two")
    command, pid = begin_upgrade(own)
    stop(own)
    waiting = Array.new(100) { connect(own).tap { |one| one.write(request("GET", "/", "Connection" => "close")) } }
    unix = UNIXSocket.new(own.path("app.sock"))
    unix.write(request("GET", "/", "Connection" => "close"))
    Process.kill("KILL", own.pid)
    open_gate(own)
    assert_equal(["two"], waiting.map { |one| one.read_response("GET").body }.uniq)
    assert_match(/two\z/, unix.read)
    _, err, code = command.value
    assert_equal 1, code
    assert_match(/the upgrade may still be running|ended before the upgrade did/, err)
    own.adopt(pid)
    assert_logged(/died while it handed over/, on: own)
    assert_equal "#{pid}\n", File.read(own.path("server.pid"))
    assert_equal pid, own.stats["pid"]
    wait_until("one template") { templates(own).size == 1 }
    UNIXSocket.open(own.path("app.sock"), &:close_write)
  ensure
    unix&.close
  end

  it "is started by USR2, and its steps are in the error log" do
    own = launch
    deploy(own, "two")
    own.signal("USR2")
    assert wait_until(within: 30) { own.stderr.include?("finishes its requests and ends") }, own.report
    own.follow(Integer(own.stderr[/process (\d+) is started/, 1]))
    assert_equal "two", get("/", to: own).body
  end

  it "keeps its variable from the app, and does not believe one that was left over" do
    app = %(names = ENV.keys.grep(/HANDOVER/)\nrun ->(_) { [200, { "content-type" => "text/plain" }, [names.inspect]] }\n)
    own = launch(app: app, env: { "FIREBRICK_HANDOVER" => Process.pid.to_s })
    assert_equal "[]", get("/", to: own).body
    assert_upgrades(own)
    assert_equal "[]", get("/", to: own).body
    environment = File.binread("/proc/#{templates(own).first.pid}/environ")
    refute_includes environment, "FIREBRICK_HANDOVER"
  end

  it "gives standard input back" do
    own = launch
    assert_upgrades(own)
    assert_equal File::NULL, File.readlink("/proc/#{own.pid}/fd/0")
  end

  it "accepts on all sockets with fewer front threads, with more, and with more again" do
    own = launch(settings: { front_threads: 3 })
    [1, 3, 4, 1].each do |threads|
      File.write(own.path("firebrick.toml"), "front_threads = #{threads}\n")
      assert_upgrades(own)
      assert_match(/#{threads} front thread/, own.stdout.lines.grep(/front thread/).last)
      responses = Array.new(40) { get("/", to: own).status }
      assert_equal [200], responses.uniq
    end
  end

  it "binds new addresses, closes those that are gone, and removes their files" do
    port = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }
    binds = ->(*all) { "bind = #{all.inspect}\n" }
    own = launch(binds: [], files: { "firebrick.toml" => binds["tcp://127.0.0.1:#{port}", "unix://old.sock"] })
    another = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }
    File.write(own.path("firebrick.toml"), binds["tcp://127.0.0.1:#{another}", "unix://new.sock", "tcp://127.0.0.1:#{port}"])
    assert_upgrades(own)
    refute_path_exists own.path("old.sock")
    UNIXSocket.open(own.path("new.sock"), &:close_write)
    [port, another].each { |one| TCPSocket.open("127.0.0.1", one, &:close_write) }
    File.write(own.path("firebrick.toml"), binds["tcp://127.0.0.1:#{another}"])
    assert_upgrades(own)
    assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) }
    refute_path_exists own.path("new.sock")
  end

  it "keeps a Unix socket's file until the new program ends" do
    own = launch(binds: ["unix://app.sock"])
    inode = File.stat(own.path("app.sock")).ino
    2.times do |number|
      deploy(own, number.to_s)
      assert_upgrades(own)
      assert_equal inode, File.stat(own.path("app.sock")).ino
      UNIXSocket.open(own.path("app.sock")) do |socket|
        socket.write(request("GET", "/", "Connection" => "close"))
        assert_match(/#{number}\z/, socket.read)
      end
    end
    own.signal("TERM")
    wait_until("its end") { !own.running? }
    refute_path_exists own.path("app.sock")
  end

  it "hands over control ports with the token that was generated" do
    own = launch(args: ["--control", "tcp://127.0.0.1:0"])
    link = -> { own.stdout.scan(%r{Dashboard: (http://\S+)}).flatten }
    assert_equal 0, own.command_line("upgrade", "--control", link.call.last[%r{//([^/]+)}, 1].prepend("tcp://"), "--token", link.call.last[/token=(\w+)/, 1]).last
    own.follow(Integer(own.stderr[/process (\d+) is started/, 1]))
    assert_equal 1, link.call.uniq.size, "the same port and token"
  end

  it "goes through a current link to a new release, when the old one has been deleted" do
    base = Dir.mktmpdir("firebrick-releases")
    app = %(run ->(_) { [200, {}, [__dir__ + " " + ENV["PWD"].to_s]] }\n)
    %w[1 2].each { |release| FileUtils.mkdir_p(File.join(base, release)) && File.write(File.join(base, release, "config.ru"), app) }
    current = File.join(base, "current")
    File.symlink("1", current)
    own = UpgradableServer.new(directory: current, args: [], env: { "PWD" => current })
    @own_servers << own
    own.start
    assert_equal "#{base}/1 #{current}", get("/", to: own).body
    File.symlink("2", "#{current}.new")
    File.rename("#{current}.new", current)
    FileUtils.rm_r(File.join(base, "1"))
    assert_upgrades(own)
    assert_equal "#{base}/2 #{current}", get("/", to: own).body
  ensure
    own&.finish
    FileUtils.rm_rf(base)
  end

  # Stops every thread of the front.
  def stop(own)
    Process.kill("STOP", own.pid)
    stats = -> { Dir["/proc/#{own.pid}/task/*/stat"].map { |file| File.read(file)[/\) (\S)/, 1] } }
    wait_until("all threads to stop") { stats.call.uniq == ["T"] }
  end

  it "hands over a site without an app" do
    own = UpgradableServer.new(files: { "static.json" => '{"root": "dist"}', "dist/index.html" => "site" }, workers: nil, threads: nil)
    @own_servers << own
    own.start
    assert_equal "site", get("/", to: own).body
    assert_upgrades(own)
    assert_equal "site", get("/", to: own).body
  end
end
