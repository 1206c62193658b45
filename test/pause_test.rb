# frozen_string_literal: true

# `firebrick pause` and `firebrick resume`: requests for the app wait in the front, up to a time and a number.

require "support/case"
require "support/certificates"
require "support/http2_client"
require "support/interrupting"
require "support/load"
require "support/upgrading"
require "io/wait"

class PauseTest < Case
  parallel! slow: true

  include Certificates
  include Upgrading
  include Interrupting

  APP = Interrupting::APP

  def setup
    firebrick_only
  end

  # --- holding and releasing

  it "holds requests for the app, and lets them go in order of arrival" do
    own = start(app: APP, threads: "1:1", fibers: 1)
    get("/50ms/0", to: own)
    out = assert_pauses(own, "--for", "2m")
    assert_match(/^for 120 s: firebrick resume ends the pause earlier$/, out)
    assert_match(/^paused: 0 requests in flight, 0 waiting$/, out)
    waiting = (1..8).map do |number|
      send_to(own, "/50ms/#{number}").tap { wait_for_waiting(number, on: own) }
    end
    assert_no_response(waiting.first)
    assert_equal ["GET /50ms/0"], served(own), "the app is not called"
    assert_equal 0, own.stats["queue"]["length"], "they are not in the queue"
    assert_match(/\Aresumed: 8 requests go to the app$/, assert_resumes(own))
    waiting.each { |connection| assert_status 200, connection.read_response("GET") }
    assert_equal (0..8).map { |name| "GET /50ms/#{name}" }, served(own)
    assert_equal %w[off 8 0], pause_of(own).values_at("state", "held", "refused").map(&:to_s)
    assert_logged(/paused for 120 s by the control socket/, on: own)
    assert_logged(/the pause has ended, resumed by the control socket: 8 requests go to the app/, on: own)
  end

  # With quick requests a worker gets several at a time, from several front threads.
  { "threads" => { threads: "1:1", fibers: 1 }, "fibers" => { threads: "1:1", fibers: 1, settings: { fibers: 1 } } }.each do |name, options|
    it "lets quick requests of three front threads go in order of arrival, over HTTP/1 and HTTP/2 (#{name})" do
      options = options.merge(settings: { front_threads: 3 }.merge(options.fetch(:settings, {})))
      options.delete(:fibers) if name == "fibers"
      own = start(app: APP, binds: ["tcp://127.0.0.1:0?h2c=true"], **options)
      connections = Array.new(6) { connect(own) }
      streams = Array.new(3) { Http2Client.new(own.address).tap { |one| @connections << one } }
      300.times { |number| connections[number % 6].write(request("GET", "/warm")).read_response("GET") }
      assert_pauses(own)
      (1..60).each do |number|
        (number % 3).zero? ? streams[number / 3 % 3].request("/#{number}") : (connections << send_to(own, "/#{number}"))
        wait_for_waiting(number, on: own)
      end
      assert_resumes(own)
      wait_until("all of them") { served(own).size == 360 }
      assert_equal (1..60).map { |number| "GET /#{number}" }, served(own).last(60)
    end
  end

  it "ends by itself when its time is over, also when the command that began it has died" do
    own = start(app: APP)
    gate = send_to(own, "/gate")
    wait_until("the request to be served") { entered?(own) }
    command = own.begin_command("pause", own.dir, "--for", "3s", "--wait")
    wait_until("the pause") { pause_of(own)["state"] == "on" }
    waiting = send_to(own, "/late")
    wait_for_waiting(1, on: own)
    command.kill
    assert_equal "on", pause_of(own)["state"]
    assert_status 200, waiting.read_response("GET")
    assert_logged(/the pause has ended, its time is over: 1 request goes to the app/, on: own)
    let_go(own)
    assert_status 200, gate.read_response("GET")
    out, err, code = own.command_line("resume", own.dir)
    assert_equal [1, ""], [code, out]
    assert_match(/\Afirebrick: the app is not paused; the last pause ended \d+ s ago: its time is over$/, err)
  end

  it "waits for the requests in flight, and says so" do
    own = start(app: APP)
    gate = send_to(own, "/gate")
    wait_until("the request to be served") { entered?(own) }
    assert_match(/^paused: 1 request in flight, 0 waiting$/, assert_pauses(own))
    command = own.begin_command("pause", own.dir, "--wait")
    wait_until("the command to wait") { command.output.include?("waiting: paused: 1 request in flight") }
    late = send_to(own, "/late")
    wait_for_waiting(1, on: own)
    let_go(own)
    assert_equal "one opened", gate.read_response("GET").body
    assert_equal 0, command.wait.code, command.output
    assert_match(/^paused: 0 requests in flight, 1 waiting$/, command.output)
    assert_resumes(own)
    assert_status 200, late.read_response("GET")
  end

  it "fails to wait for requests that take longer than the pause, and names the oldest" do
    own = start(app: APP)
    gate = send_to(own, "/gate")
    wait_until("the request to be served") { entered?(own) }
    _, err, code = own.command_line("pause", own.dir, "--for", "1s", "--wait")
    assert_equal 1, code
    assert_match(%r{the pause has ended while 1 of the requests were in flight; the oldest, GET /gate, has taken}, err)
    let_go(own)
    assert_status 200, gate.read_response("GET")
  end

  it "refuses more than --max with 503 and Retry-After" do
    own = start(app: APP)
    assert_pauses(own, "--for", "100s", "--max", "2")
    waiting = Array.new(2) { send_to(own, "/") }
    wait_for_waiting(2, on: own)
    refused = get("/", to: own)
    assert_status 503, refused
    assert_includes 90..100, Integer(refused["retry-after"])
    assert_equal [2, 2, 1], pause_of(own).values_at("waiting", "held", "refused")
    waiting.first.close
    wait_for_waiting(1, on: own)
    assert_equal 1, pause_of(own)["left"]
    waiting << send_to(own, "/")
    wait_for_waiting(2, on: own)
    assert_resumes(own)
    waiting.drop(1).each { |connection| assert_status 200, connection.read_response("GET") }
    assert_equal 2, served(own).size, "the client that left was not served"
  end

  it "holds only the paths that it is told" do
    own = start(app: APP)
    assert_pauses(own, "--paths", "/orders,/cart")
    held = %w[/orders /orders/7 /%6frders//x /cart].map { |path| send_to(own, path) }
    wait_for_waiting(4, on: own)
    %w[/ /ordersx /api/orders].each { |path| assert_status 200, get(path, to: own), path }
    assert_equal %w[/orders /cart], pause_of(own)["paths"]
    assert_resumes(own)
    held.each { |connection| assert_status 200, connection.read_response("GET") }
  end

  it "goes on to serve files, probes, mruby and figures" do
    own = start(app: APP, files: { "public/a.txt" => "a file" }, args: ["--live-path", "/livez", "--ready-path", "/readyz", "--public", "public"],
                settings: { files: { public: "public" } })
    assert_pauses(own)
    assert_equal "a file", get("/a.txt", to: own).body
    %w[/livez /readyz].each { |path| assert_status 200, get(path, to: own), path }
    waiting = send_to(own, "/")
    wait_for_waiting(1, on: own)
    assert_match(/^firebrick_paused 1$/, own.metrics)
    assert_match(/^firebrick_pause_waiting 1$/, own.metrics)
    assert_equal "on", own.stats["pause"]["state"]
    assert_match(/^pause +paused: 0 requests in flight, 1 waiting; /, own.command_line("stats", own.dir).first)
    assert_match(/^pause +.+ more: 1 waiting, 0 in flight$/, own.command_line("status", own.dir).first)
    assert_resumes(own)
    assert_status 200, waiting.read_response("GET")
    assert_match(/^firebrick_paused 0$/, own.metrics)
    refute_match(/^pause/, own.command_line("status", own.dir).first)
  end

  it "changes the terms of a pause in force" do
    own = start(app: APP)
    assert_pauses(own, "--for", "1s")
    waiting = send_to(own, "/")
    wait_for_waiting(1, on: own)
    assert_match(/^for 300 s/, assert_pauses(own, "--for", "5m", "--max", "1"))
    sleep 1.2
    assert_no_response(waiting)
    assert_status 503, get("/", to: own)
    assert_resumes(own)
    assert_status 200, waiting.read_response("GET")
  end

  it "does not count the pause as time in the queue, and shows it in the logs and to the client" do
    own = start(app: APP, settings: { timeouts: { queue: "1s" } }, args: ["-v", "--log-format", "json"])
    assert_pauses(own)
    waiting = send_to(own, "/", headers: { "Firebrick-Timing" => "1" })
    wait_for_waiting(1, on: own)
    sleep 2
    assert_resumes(own)
    response = waiting.read_response("GET")
    assert_status 200, response
    paused, queued = response["server-timing"].match(/\Apause;dur=([\d.]+), queue;dur=([\d.]+)/).captures.map(&:to_f)
    assert_operator paused, :>=, 2000
    assert_operator queued, :<, 1000
    line = wait_until("the line of the log") { own.stdout.lines.find { |one| one.start_with?("{") && one.include?("pause_ms") } }
    assert_operator JSON.parse(line)["pause_ms"], :>=, 2000
    assert_operator JSON.parse(line)["queue_ms"], :<, 1000
  end

  # --- clients

  it "leaves WebSockets and other tunnels alone" do
    own = start(app: APP)
    tunnel = send_to(own, "/socket", headers: { "Connection" => "Upgrade", "Upgrade" => "echo" })
    assert_match(/101/, tunnel.socket.readpartial(1000))
    assert_match(/^paused: 0 requests in flight/, assert_pauses(own))
    tunnel.write("hello\n")
    assert_equal "echo hello\n", tunnel.socket.readpartial(1000)
    assert_resumes(own)
  end

  it "holds uploads within the limits of uploads, and does not lose a byte" do
    own = start(app: APP)
    assert_pauses(own)
    small = "x" * 1000
    large = Random.bytes(3 << 20)
    connections = [small, large].map do |body|
      connect(own).tap { |one| one.write(request("POST", "/echo", {}, body)) }
    end
    slow = connect(own)
    slow.write("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf ")
    wait_for_waiting(2, on: own)
    slow.write("there")
    wait_for_waiting(3, on: own)
    assert_resumes(own)
    assert_equal([small, large], connections.map { |one| one.read_response("POST").body })
    assert_equal "half there", slow.read_response("POST").body
  end

  it "holds streams of HTTP/2, and drops those that the client resets" do
    own = start(app: APP, binds: ["tcp://127.0.0.1:0?h2c=true"])
    client = Http2Client.new(own.address).tap { |one| @connections << one }
    assert_pauses(own)
    streams = Array.new(5) { |number| client.request("/#{number}") }
    streams << client.request("/echo", body: "with a body")
    wait_for_waiting(6, on: own)
    client.write(client.rst_stream(streams[1]))
    wait_for_waiting(5, on: own)
    assert_resumes(own)
    (streams - [streams[1]]).each { |stream| assert_equal 200, client.answer(stream).status }
    assert_equal "with a body", client.answer(streams.last).body
    refute_includes served(own), "GET /1"
  end

  it "holds 2,000 requests, and passes them on no faster than the app takes them" do
    own = start(app: APP, workers: 2, threads: "2:2", fibers: 2, settings: { limits: { max_queue: 50 } })
    assert_pauses(own, "--for", "5m", "--max", "3000")
    sockets = Array.new(2000) { TCPSocket.new(*own.address).tap { |socket| socket.write(request("GET", "/", { "Connection" => "close" })) } }
    wait_for_waiting(2000, on: own)
    assert_match(/resumed: 2000 requests/, assert_resumes(own))
    late = get("/late", to: own)
    statuses = sockets.map { |socket| socket.read[%r{\AHTTP/1.1 (\d+)}, 1].to_i }
    assert_equal({ 200 => 2000 }, statuses.tally, "the queue has room for 50")
    assert_status 200, late
    queue = own.stats["queue"]
    assert_equal [0, 0, 0], queue.values_at("refused_full", "refused_early", "expired")
    assert_operator queue["longest"], :<=, 50
    # Four threads may begin theirs in any order.
    assert_includes served(own).last(4), "GET /late", "it came after the others"
  ensure
    sockets&.each(&:close)
  end

  it "holds requests over HTTP/3" do
    cert, key = certificate
    own = start(app: APP, files: { "own.pem" => cert.to_pem, "own.key" => key.to_pem }, binds: ["ssl://127.0.0.1:0?cert=own.pem&key=own.key"])
    assert_pauses(own)
    load = own.begin_command("bench", "https://127.0.0.1:#{own.port}/echo", "-k", "--http", "3", "-c", "2", "-n", "4", "--body", "over QUIC", "--expect-body", "over QUIC")
    wait_for_waiting(2, on: own)
    assert_resumes(own)
    assert_equal 0, load.wait.code, load.output
    assert_equal 4, served(own).size
  end

  it "does not let a busy pool delay the others" do
    own = start(app: APP, threads: "1:1", fibers: 1, settings: { pools: { slow: { paths: ["/gate"], threads: 1 } } })
    assert_pauses(own)
    slow = Array.new(40) { send_to(own, "/gate") }
    quick = Array.new(40) { |number| send_to(own, "/#{number}") }
    wait_for_waiting(80, on: own)
    assert_resumes(own)
    quick.each { |connection| assert_status 200, connection.read_response("GET") }
    assert_operator pause_of(own)["waiting"], :>, 0, "the others still wait for room"
    let_go(own)
    slow.each { |connection| assert_status 200, connection.read_response("GET") }
    wait_until("the end") { pause_of(own)["state"] == "off" }
  end

  it "holds requests that fibers serve" do
    own = start(app: APP, threads: "1:1", fibers: nil, settings: { fibers: 50 })
    assert_pauses(own)
    waiting = Array.new(200) { send_to(own, "/50ms") }
    wait_for_waiting(200, on: own)
    assert_equal(0, own.stats["workers"].sum { |worker| worker["in_flight"] })
    assert_resumes(own)
    waiting.each { |connection| assert_status 200, connection.read_response("GET") }
  end

  it "loses no request of any client in 30 pauses, while workers die and code is replaced" do
    own = launch_app(app: APP, workers: 2, threads: "2:2", settings: { reload: { keep: "0s", watch: "0s" } })
    loads = [true, false].map { |keep| Load.new(own.address, clients: 8, path: "/", keep_alive: keep, pause: 0.01).start }
    wait_until("load") { loads.all? { |load| load.completed.size > 50 } }
    30.times do |number|
      assert_pauses(own, "--wait")
      assert_equal(0, own.stats["workers"].sum { |worker| worker["busy_threads"] })
      Process.kill("KILL", workers_of(own).sample) if number % 10 == 4
      assert_reloads(own) if number % 10 == 8
      assert_resumes(own)
    end
    so_far = loads.map { |load| load.completed.size }
    wait_until("more load") { loads.zip(so_far).all? { |load, size| load.completed.size > size + 50 } }
    loads.each(&:stop)
    assert_empty loads.flat_map(&:errors)
    assert_equal [200], loads.flat_map { |load| load.completed.map(&:status) }.uniq
    assert_equal 0, pause_of(own)["refused"]
  end

  it "drops the places of 500 clients that go away" do
    own = start(app: APP)
    assert_pauses(own)
    sockets = Array.new(500) { TCPSocket.new(*own.address).tap { |socket| socket.write(request("GET", "/")) } }
    wait_for_waiting(500, on: own)
    sockets.each(&:close)
    wait_for_waiting(0, on: own)
    assert_resumes(own)
    assert_status 200, get("/after", to: own)
    assert_equal ["GET /after"], served(own)
  end

  # --- what survives

  it "survives reloads, a reload that is undone, and the death of a worker" do
    own = launch_app(app: APP, workers: 2)
    assert_pauses(own, "--for", "5m")
    waiting = send_to(own, "/")
    wait_for_waiting(1, on: own)
    deploy(own, "two")
    assert_reloads(own)
    assert_reloads(own, "--undo")
    deploy(own, "three")
    assert_reloads(own)
    assert_reloads(own, "--in-place")
    workers_of(own).each { |pid| Process.kill("KILL", pid) }
    wait_until("new workers") { own.stats["workers"].count { |worker| worker["state"] == "ready" } == 2 }
    assert_no_response(waiting)
    assert_equal ["on", 1], pause_of(own).values_at("state", "waiting")
    assert_resumes(own)
    assert_equal "three", waiting.read_response("GET").body
  end

  it "begins during a reload" do
    own = launch_app(app: "sleep 1\n#{APP}", workers: 2)
    deploy(own, "two")
    command = own.begin_command("reload", own.dir)
    wait_until("the reload") { command.output.include?("booting") }
    assert_pauses(own, "--wait")
    waiting = send_to(own, "/")
    wait_for_waiting(1, on: own)
    assert_equal 0, command.wait.code, command.output
    assert_resumes(own)
    assert_equal "two", waiting.read_response("GET").body
  end

  it "goes over to the program of an upgrade, which ends it for the old one too" do
    own = launch(app: APP)
    assert_pauses(own, "--for", "5m", "--max", "7", "--paths", "/held")
    before = send_to(own, "/held/before")
    wait_for_waiting(1, on: own)
    deploy(own, "two")
    out = assert_upgrades(own, follow: false)
    state = pause_of(own)
    assert_equal ["on", 7, ["/held"], 0], state.values_at("state", "max", "paths", "waiting")
    assert_operator state["remaining_ms"], :>, 200_000
    assert_equal "two", get("/other", to: own).body
    after = send_to(own, "/held/after")
    wait_for_waiting(1, on: own)
    assert_no_response(before)
    assert_match(/^for 400 s/, assert_pauses(own, "--for", "400s", "--paths", "/held"))
    assert_resumes(own)
    assert_equal "one", before.read_response("GET").body, "the old program serves it"
    assert_equal "two", after.read_response("GET").body
    own.follow(new_pid(out))
  end

  it "that begins while a new program boots goes over too" do
    own = launch_gated(version: "one")
    close_gate(own)
    command, pid = begin_upgrade(own)
    assert_pauses(own, "--for", "5m")
    open_gate(own)
    assert_equal 0, command.value.last
    assert_equal "on", pause_of(own)["state"]
    waiting = send_to(own, "/")
    wait_for_waiting(1, on: own)
    assert_resumes(own)
    assert_status 200, waiting.read_response("GET")
    own.follow(pid)
  end

  it "goes on with the old program when an upgrade fails" do
    own = launch(app: APP)
    assert_pauses(own, "--for", "5m")
    waiting = send_to(own, "/")
    wait_for_waiting(1, on: own)
    File.write(own.path("config.ru"), "raise 'broken'")
    _, _, code = upgrade(own)
    assert_equal 1, code
    assert_resumes(own)
    assert_equal "one", waiting.read_response("GET").body
  end

  it "refuses what waits when the server is shut down" do
    own = start(app: APP)
    assert_pauses(own)
    waiting = Array.new(3) { send_to(own, "/") }
    wait_for_waiting(3, on: own)
    own.signal("TERM")
    waiting.each do |connection|
      response = connection.read_response("GET")
      assert_status 503, response
      assert_equal "1", response["retry-after"]
    end
    assert_equal 0, own.wait_exit
    assert_empty served(own)
    assert_match(/shutting down while the app is paused: 3 requests get 503/, own.stderr)
  end

  it "can be resumed while the server is a lame duck" do
    own = start(app: APP, settings: { timeouts: { lame_duck: "20s" } })
    assert_pauses(own)
    waiting = send_to(own, "/")
    wait_for_waiting(1, on: own)
    own.signal("TERM")
    wait_until("the server to leave") { own.control("/status")["state"] == "leaving" }
    assert_resumes(own)
    assert_status 200, waiting.read_response("GET")
    own.signal("TERM")
    assert_equal 0, own.wait_exit
  end

  it "does not begin when the ports are closed" do
    own = start(app: APP)
    gate = send_to(own, "/gate")
    wait_until("the request to be served") { entered?(own) }
    own.signal("TERM")
    wait_until("the server to drain") { own.control("/status")["state"] == "draining" }
    _, err, code = own.command_line("pause", own.dir)
    assert_equal [1, "firebrick: the server is shutting down\n"], [code, err]
    let_go(own)
    assert_status 200, gate.read_response("GET")
    assert_equal 0, own.wait_exit
  end

  # --- mistakes

  it "says what is wrong with an order" do
    own = start(app: APP)
    [[%w[--for 1h], /--for 1h: expected a time such as 30s or 2m, from 1s to 10m/],
     [%w[--for 0], /--for 0: expected a time/],
     [%w[--max 0], /--max 0: expected a number from 1 to 100000/],
     [%w[--max many], /--max many: expected a number/],
     [%w[--paths orders], /--paths orders: expected a path such as/]].each do |words, expected|
      out, err, code = own.command_line("pause", own.dir, *words)
      assert_equal [2, ""], [code, out], words
      assert_match expected, err
    end
    _, err, code = own.command_line("resume", own.dir)
    assert_equal [1, "firebrick: the app is not paused\n"], [code, err]
    assert_equal "off", pause_of(own)["state"]
  end

  it "needs a server, and an app" do
    site = start(files: { "index.html" => "x" }, workers: nil, threads: nil, environment: nil)
    _, err, code = site.command_line("pause", site.dir)
    assert_equal [1, "firebrick: there is no app whose requests could be held\n"], [code, err]
    site.signal("TERM")
    site.wait_exit
    %w[pause resume maintenance].each do |command|
      _, err, code = site.command_line(command, *["status"].first(command == "maintenance" ? 1 : 0), site.dir)
      assert_equal 1, code
      assert_match(/no Firebrick is running for/, err)
    end
  end
end
