# frozen_string_literal: true

# Probes (/live, /ready), `firebrick status` and `firebrick stop`, and graceful shutdown (`timeouts.lame_duck`).

require "support/case"

class HealthTest < Case
  parallel! slow: true

  APP = <<~RUBY
    require "socket"
    run lambda { |env|
      sleep 0.02 until File.exist?("../go") if env["PATH_INFO"] == "/wait"
      [200, { "content-type" => "text/plain" }, ["hello from the app"]]
    }
  RUBY

  def setup
    firebrick_only
  end

  # [status, body] of a request to the control socket.
  def control(server, path)
    head, body = server.control_response(path)
    [head[/\AHTTP\S+ (\d+)/, 1].to_i, body]
  end

  # Returns nil while it does not listen yet.
  def live(server)
    control(server, "/live") if Dir[File.join(server.run_dir, "firebrick", "*.sock")].any?
  rescue Errno::ECONNREFUSED
    nil
  end

  def go(server) = FileUtils.touch(File.join(server.base, "go"))

  it "says live and ready while all workers are busy" do
    own = start(app: APP, threads: "1:1", fibers: 1, args: ["--live-path", "/livez", "--ready-path", "/readyz"])
    busy = Array.new(3) { connect(own).tap { |connection| connection.write(request("GET", "/wait")) } }
    wait_for_requests(3, on: own)
    assert_equal [200, "ok\n"], control(own, "/live")
    assert_equal [200, "ok\n"], control(own, "/ready")
    %w[/livez /readyz].each do |path|
      response = get(path, to: own)
      assert_status 200, response, path
      assert_equal "ok\n", response.body
    end
    assert_equal 1, own.control("/stats")["workers"].first["busy_threads"], "the probes took no worker"
  ensure
    go(own) if own
    busy&.each { |connection| assert_status 200, connection.read_response("GET") }
  end

  it "leaves POST requests to the path of a probe to the app" do
    own = start(app: APP, args: ["--ready-path", "/readyz"])
    assert_equal "hello from the app", post("/readyz", "x", to: own).body
    response = ask("HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n", to: own, method: "HEAD")
    assert_status 200, response
    assert_equal "", response.body
  end

  it "answers probes while the app is loading, and has no figures yet" do
    own = Server.new(app: "sleep 0.05 until File.exist?('../go')\n#{APP}")
    @own_servers << own
    own.launch
    # The socket's file exists a moment before the server listens.
    assert_equal([200, "ok\n"], wait_until { live(own) })
    assert_equal [503, "the server is starting\n"], control(own, "/ready")
    assert_equal 503, control(own, "/stats").first
    out, _, code = own.command_line("status", own.dir)
    assert_equal 0, code
    assert_match(/^state +booting \(not ready: the server is starting\)$/, out)
    go(own)
    assert wait_until(within: 30) { control(own, "/ready").first == 200 }
    assert_equal 200, control(own, "/stats").first
  end

  it "is ready as a static site, which has no workers" do
    own = start(files: { "index.html" => "x" }, workers: nil, threads: nil, environment: nil)
    assert_equal [200, "ok\n"], control(own, "/ready")
    status = JSON.parse(own.command_line("status", own.dir, "--json").first)
    assert_nil status["workers"]
    assert status["ready"]
  end

  it "is not ready without a worker, but live" do
    own = start(app: APP)
    worker = own.stats["workers"].first["pid"]
    Process.kill("STOP", template = own.processes.map(&:pid).find { |pid| Processes.info(worker).parent == pid })
    Process.kill("KILL", worker)
    assert(wait_until { control(own, "/ready") == [503, "no worker is ready\n"] })
    assert_equal [200, "ok\n"], control(own, "/live")
    Process.kill("CONT", template)
    assert wait_until(within: 30) { control(own, "/ready").first == 200 }
  end

  it "needs no token for probes at a control port, and shows nothing else there" do
    own = start(app: APP, args: ["--control", "tcp://127.0.0.1:0"])
    port = own.stdout[%r{Control on tcp://127\.0\.0\.1:(\d+)}, 1].to_i
    answer = lambda do |path|
      TCPSocket.open("127.0.0.1", port) do |socket|
        socket.write("GET #{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        socket.read[/\AHTTP\S+ (\d+)/, 1].to_i
      end
    end
    assert_equal [200, 200, 403, 403], %w[/live /ready /status /stats].map(&answer)
  end

  it "says by `status` what runs, and where" do
    own = start(app: APP, workers: 2)
    out, err, code = own.command_line("status", own.dir)
    assert_equal [0, ""], [code, err]
    assert_match(/\AFirebrick \S+ is running for #{Regexp.escape(own.dir)}$/, out)
    assert_match(/^pid +#{own.pid}$/, out)
    assert_match(/^state +serving \(ready\)$/, out)
    assert_match(/^workers +2 of 2 ready$/, out)
    assert_match(%r{^address +http://127\.0\.0\.1:#{own.port}$}, out)
    status = JSON.parse(own.command_line("status", own.dir, "--json").first)
    assert_equal [own.pid, "serving", 2, ["http://127.0.0.1:#{own.port}"]], status.values_at("pid", "state", "workers_ready", "addresses")
  end

  it "says by `status` that nothing runs, with the exit codes of init scripts" do
    own = start(app: APP)
    empty = File.join(own.base, "other").tap { |dir| FileUtils.mkdir_p(dir) }
    File.write(File.join(empty, "config.ru"), APP)
    out, err, code = own.command_line("status", empty)
    assert_equal [3, ""], [code, out]
    assert_match(/no Firebrick is running for #{Regexp.escape(empty)}/, err)
    File.write(File.join(own.base, "stale.pid"), "999999999\n")
    _, err, code = own.command_line("status", empty, "--pidfile", File.join(own.base, "stale.pid"))
    assert_equal 1, code
    assert_match(/names process 999999999, which has ended/, err)
    File.delete(File.join(own.base, "stale.pid"))
    out, _, code = own.command_line("stop", empty)
    assert_equal 0, code, "stopping what does not run is no failure"
    assert_match(/no Firebrick is running/, out)
  end

  it "stops by `stop`, which waits and shows what it waits for" do
    own = start(app: APP)
    waiting = connect(own)
    waiting.write(request("GET", "/wait"))
    wait_for_requests(1, on: own)
    stopping = Thread.new { own.command_line("stop", own.dir) }
    assert(wait_until { control(own, "/ready") == [503, "the server is shutting down and accepts no new connections\n"] })
    # Waits until `stop` has seen it, too.
    sleep 0.7
    go(own)
    assert_status 200, waiting.read_response("GET")
    out, err, code = stopping.value
    assert_equal [0, ""], [code, err]
    assert_match(/\ATERM sent to process #{own.pid}\nports closed; 1 request of the app in progress\n(?:.*\n)?process #{own.pid} has ended after/, out)
    assert_equal 0, own.wait_exit
  end

  it "gives up after --timeout, says why, and kills nothing" do
    own = start(app: APP)
    waiting = connect(own)
    waiting.write(request("GET", "/wait"))
    wait_for_requests(1, on: own)
    out, err, code = own.command_line("stop", own.dir, "--timeout", "300ms")
    assert_equal [1, "TERM sent to process #{own.pid}\n"], [code, out]
    assert_match(/\Afirebrick: process #{own.pid} is still running after 0\.3 s: ports closed; 1 request of the app in progress; it will still exit/, err)
    assert own.running?
    go(own)
    assert_status 200, waiting.read_response("GET")
    assert_equal 0, own.wait_exit
    _, err, code = own.command_line("stop", own.dir, "--timeout", "soon")
    assert_equal 2, code
    assert_match(/--timeout soon: expected a time/, err)
  end

  it "is a lame duck for a while after TERM: not ready, accepting, ending connections with their next response" do
    own = start(app: APP, args: ["--lame-duck", "60s", "--ready-path", "/readyz"])
    idle = connect(own)
    idle.write(request("GET", "/"))
    assert_nil idle.read_response("GET")["connection"]
    own.signal("TERM")
    leaving = [503, "the server is shutting down; it still accepts connections\n"]
    assert(wait_until { control(own, "/ready") == leaving })
    assert_equal [200, "ok\n"], control(own, "/live")
    assert_status 503, get("/readyz", to: own)
    response = get("/", to: own)
    assert_status 200, response, "a new connection"
    assert_equal "close", response["connection"]
    idle.write(request("GET", "/"))
    response = idle.read_response("GET")
    assert_equal [200, "close"], [response.status, response["connection"]]
    assert_closed idle
    assert own.running?
    own.signal("TERM")
    assert_equal 0, own.wait_exit, "a second TERM ends the wait"
  end

  it "goes over to draining when the lame duck's time is over, and at once after INT" do
    own = start(app: APP, settings: { "timeouts" => { "lame_duck" => "300ms" } })
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    assert_logged(/leaving: .* for 0\.3 s more/, on: own)
    own = start(app: APP, args: ["--lame-duck", "60s"])
    own.signal("INT")
    assert_equal 0, own.wait_exit
    refute_match(/leaving/, own.stderr)
    own = start(app: APP, args: ["--lame-duck", "60s"])
    own.signal("TERM")
    assert_logged "leaving:", on: own
    own.signal("INT")
    assert_equal 0, own.wait_exit
  end

  it "waits in Kubernetes, and nowhere else, unless it is told" do
    own = start(app: APP, env: { "KUBERNETES_SERVICE_HOST" => "10.0.0.1" })
    own.signal("TERM")
    assert_logged(/leaving: .* for 5 s more/, on: own)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    own = start(app: APP, env: { "KUBERNETES_SERVICE_HOST" => "10.0.0.1" }, args: ["--lame-duck", "0"])
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    refute_match(/leaving/, own.stderr)
  end
end
