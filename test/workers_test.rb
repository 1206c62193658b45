# frozen_string_literal: true

# Workers start, serve, die and are replaced; signals; fairness between clients.

require "support/case"
require "support/load"

WORKERS_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/pid" then [200, text, [Process.pid.to_s]]
    when "/20ms" then sleep 0.02; [200, text, [Process.pid.to_s]]
    when "/suicide" then Process.kill(:KILL, Process.pid); sleep
    when "/stuck" then ENV.key?("TEST_FIBERS") ? (nil while true) : sleep # a fiber that waits does not hold its worker up
    when "/slow" then File.write("entered.log", "yes"); sleep 1; [200, text, ["finished"]]
    when "/slower" then File.write("entered.log", "yes"); sleep 30; [200, text, ["too late"]]
    else [200, text, ["fine"]]
    end
  }
RUBY

class WorkerDeathTest < Case
  parallel!

  it "responds with 502 to the request that killed its worker, and to no other" do
    firebrick_only
    own = start(workers: 6, threads: "1:1", fibers: 1, app: WORKERS_APP)
    load = Load.new(own.address, clients: 30, path: "/20ms").start
    wait_until("load") { load.completed.size > 100 }
    5.times { assert_status 502, get("/suicide", to: own) }
    so_far = load.completed.size
    wait_until("more load") { load.completed.size > so_far + 100 }
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    assert_equal 6, wait_until("six workers") { workers_of(own).size == 6 && workers_of(own) }.size
    wait_until("the log") { own.stderr.scan("/suicide").size >= 5 && own.stderr.match?(/KILL|signal 9/) }
  end

  it "loses only the request that a killed worker was serving" do
    firebrick_only
    own = start(workers: 6, threads: "1:1", fibers: 1, app: WORKERS_APP)
    load = Load.new(own.address, clients: 60, path: "/20ms").start
    wait_until("load") { load.completed.size > 200 }
    kills = 0
    5.times do
      victim = wait_until("six workers") { workers_of(own).size == 6 && workers_of(own).sample }
      Process.kill("KILL", victim)
      kills += 1
      wait_until("its replacement") { workers_of(own).size == 6 && !workers_of(own).include?(victim) }
    end
    load.stop
    assert_empty load.errors, "no client's connection may break"
    lost = load.completed.count { |one| one.status == 502 }
    assert_operator lost, :<=, kills
    assert_equal [], load.completed.map(&:status).uniq - [200, 502]
  end

  it "kills a stuck worker, logs its backtrace, and responds with 504 to the request" do
    firebrick_only
    own = start(threads: "1:1", app: WORKERS_APP, settings: { timeouts: { worker: 1 } })
    before = get("/pid", to: own).body
    assert_status 504, get("/stuck", to: own)
    after = get("/pid", to: own)
    assert_status 200, after
    refute_equal before, after.body
    wait_until("the backtrace") { own.stderr.match?(/config\.ru:\d+/) && own.stderr.include?("/stuck") }
  end

  it "logs why a worker dies at its start, and retries with back-off" do
    firebrick_only
    own = Server.new(exit_code: :any, app: <<~'RUBY')
      # Every process forked from the one that loaded the app dies at once.
      Process.singleton_class.prepend(Module.new do
        def _fork
          pid = super
          return pid unless pid.zero?

          File.write("starts.log", "#{Process.clock_gettime(Process::CLOCK_MONOTONIC)}\n", mode: "a")
          warn "the reason why it died"
          exit! 9
        end
      end)
      run ->(_) { [200, {}, ["never"]] }
    RUBY
    @own_servers << own.launch
    starts = -> { File.exist?(own.path("starts.log")) ? File.readlines(own.path("starts.log")).map(&:to_f) : [] }
    wait_until("a few tries, or the end", within: 20) { starts.call.size >= 4 || !own.running? }
    assert_logged "the reason why it died", on: own
    assert_logged(/\b9\b/, on: own)
    times = starts.call
    assert_operator times.size, :<, 60, "too many attempts in a short time"
    gaps = times.each_cons(2).map { |a, b| b - a }
    assert_operator gaps.last, :>, gaps.first if gaps.size >= 3
  end

  it "refuses to start with an app that cannot be loaded, and shows where it fails" do
    firebrick_only
    { "raise \"the app's own fault\"" => /the app's own fault/, "require 'no/such/library'" => %r{no/such/library}, "run ->(_) { [" => /syntax/i,
      "exit 3" => /exit/i, "# nothing is run" => /run/ }.each do |source, reason|
      own = Server.new(app: "# first line\n#{source}\n", exit_code: 1)
      @own_servers << own.launch
      assert_equal 1, own.wait_exit, -> { own.report }
      assert_match reason, own.stderr
      assert_logged(/config\.ru(:2)?/, on: own)
      refute_match(/^\* Listening/, own.stdout)
    end
  end

  it "leaves nothing behind when the front is killed" do
    firebrick_only
    own = start(workers: 3, app: WORKERS_APP, exit_code: :any, binds: ["tcp://127.0.0.1:0", "unix://app.sock"])
    family = own.processes
    assert_operator family.size, :>=, 5, "front, template and three workers"
    connect(own).write(request("GET", "/stuck"))
    own.signal("KILL")
    own.wait_exit
    wait_until("all processes to end") { family.none? { |one| Processes.alive?(one) } }
  end

  it "boots a new template when the template is killed" do
    firebrick_only
    own = start(workers: 2, app: WORKERS_APP)
    template = Processes.templates(own.pid).first
    Process.kill("KILL", template.pid)
    wait_until("a new template") { Processes.templates(own.pid).any? { |one| one.pid != template.pid } }
    wait_until("a response") { get("/pid", to: own).status == 200 }
  end

  private

  # Pids of the workers: the template's children.
  def workers_of(server)
    tree = Processes.tree(server.pid)
    templates = Processes.templates(server.pid).map(&:pid)
    tree.select { |one| templates.include?(one.parent) }.map(&:pid)
  end
end

class SignalsTest < Case
  parallel!

  def in_flight(server, path = "/slow")
    connection = connect(server)
    connection.write(request("GET", path))
    wait_until("the request to be served") { File.exist?(server.path("entered.log")) }
    connection
  end

  %w[TERM INT].each do |signal|
    it "finishes requests in progress at #{signal}, accepts no new ones, and exits 0" do
      firebrick_only
      own = start(app: WORKERS_APP)
      idle = connect(own)
      idle.write(request("GET", "/pid"))
      idle.read_response
      slow = in_flight(own)
      own.signal(signal)
      assert_closed idle
      response = slow.read_response
      assert_equal "finished", response.body
      assert_includes response.connection, "close"
      assert_equal 0, own.wait_exit
      assert_raises(SystemCallError) { Connection.new(own.address) }
    end
  end

  it "serves queued requests at TERM" do
    firebrick_only
    own = start(threads: "1:1", fibers: 1, app: WORKERS_APP)
    slow = in_flight(own)
    queued = Array.new(3) { connect(own).write(request("GET", "/pid")) }
    wait_for_requests(4, on: own)
    own.signal("TERM")
    assert_equal "finished", slow.read_response.body
    queued.each { |connection| assert_status 200, connection.read_response }
    assert_equal 0, own.wait_exit
  end

  it "exits at once at the second INT" do
    firebrick_only
    own = start(app: WORKERS_APP, exit_code: :any)
    slow = in_flight(own, "/slower")
    own.signal("INT")
    sleep 0.3
    assert own.running?, "the first INT waits"
    own.signal("INT")
    own.wait_exit(within: 10)
    assert slow.ended?
  end

  it "cuts off unfinished requests after the shutdown timeout" do
    firebrick_only
    own = start(app: WORKERS_APP, settings: { timeouts: { shutdown: 1 } }, exit_code: :any)
    slow = in_flight(own, "/slower")
    own.signal("TERM")
    own.wait_exit(within: 15)
    assert slow.ended?
  end

  it "does not wait for hijacked connections" do
    firebrick_only
    own = start(settings: { timeouts: { shutdown: 25 } }, app: <<~'RUBY')
      run(lambda do |env|
        io = env["rack.hijack"].call
        Thread.new { io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n") && sleep }
        [200, {}, []]
      end)
    RUBY
    taken = connect(own).write(request("GET", "/"))
    taken.read_through("\r\n\r\n")
    own.signal("TERM")
    assert_equal 0, own.wait_exit(within: 15)
    assert taken.ended?
  end

  it "works when TERM and INT reach the whole process group" do
    firebrick_only
    %w[TERM INT].each do |signal|
      own = start(workers: 2, app: WORKERS_APP)
      slow = in_flight(own)
      Process.kill(signal, -own.pid)
      assert_equal "finished", slow.read_response.body
      assert_equal 0, own.wait_exit
    end
  end

  it "starts a worker at TTIN and stops one at TTOU, without losing requests" do
    firebrick_only
    own = start(workers: 2, threads: "1:1", app: WORKERS_APP)
    load = Load.new(own.address, clients: 20, path: "/20ms").start
    own.signal("TTIN")
    wait_until("three workers") { recent_pids(load).size == 3 }
    own.signal("TTOU")
    wait_until("two workers") { recent_pids(load).size == 2 }
    own.signal("TTOU")
    wait_until("one worker") { recent_pids(load).size == 1 }
    own.signal("TTOU")
    sleep 0.3
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    assert_status 200, get("/pid", to: own), "the last worker is kept"
  end

  it "reopens its logs at HUP" do
    firebrick_only
    own = start(app: WORKERS_APP, settings: { log: { access: "access.log" } })
    get("/before", to: own)
    log = own.path("access.log")
    wait_until("the first line") { File.exist?(log) && File.read(log).include?("/before") }
    File.rename(log, own.path("old.log"))
    own.signal("HUP")
    wait_until("the new file") { File.exist?(log) }
    get("/after", to: own)
    wait_until("the second line") { File.read(log).include?("/after") }
    refute_includes File.read(own.path("old.log")), "/after"
    assert own.running?
  end

  it "survives WINCH, USR1 and a worker that receives TERM" do
    firebrick_only
    own = start(workers: 2, threads: "1:1", app: WORKERS_APP)
    load = Load.new(own.address, clients: 10, path: "/20ms").start
    wait_until("load") { load.completed.size > 50 }
    own.signal("WINCH")
    Process.kill("TERM", load.completed.last.body.to_i)
    wait_until("a new worker") { load.completed.map(&:body).uniq.size >= 3 }
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
  end

  private

  def recent_pids(load)
    load.completed.last(60).map(&:body).uniq
  end
end

# Alone: with other load, threads of the front take turns, and a request that reaches one of them later would look like unfairness of the queue.
class FairnessTest < Case
  CLIENTS = 200
  WORKERS = 6

  # A machine that pauses for a moment makes all clients wait, so times are not compared: while a request waits,
  # others are answered, and each should see about as many of them.
  it "serves no client twice before another that waited longer, and lets nobody wait for many more others than the median" do
    steady = served
    assert_empty steady.flat_map { |waiting| served_twice_before(waiting, steady) }.uniq, "clients served twice before another that waited longer"
    received = steady.map(&:received_at)
    others = steady.drop(CLIENTS).map { |one| received.bsearch_index { |at| at >= one.received_at } - received.bsearch_index { |at| at >= one.sent_at } }.sort
    assert_operator others[others.size / 2], :>=, CLIENTS / 2, "there was a queue"
    assert_operator others[others.size * 99 / 100], :<, others[others.size / 2] * 1.3, "p99 against the median"
  end

  private

  # The responses in order of arrival, from the time when all clients wait in the queue.
  def served
    firebrick_only
    own = start(workers: WORKERS, threads: "1:1", fibers: 1, app: WORKERS_APP)
    load = Load.new(own.address, clients: CLIENTS, path: "/20ms").start
    wait_until("enough responses", within: 60) { load.completed.size > CLIENTS * 8 }
    load.stop
    assert_empty load.errors
    assert_equal [200], load.completed.map(&:status).uniq
    load.completed.drop(CLIENTS).first(CLIENTS * 6)
  end

  # Clients that sent two requests after +waiting+ sent its own, and got both responses first.
  def served_twice_before(waiting, served)
    overtaking = served.select { |one| one.sent_at > waiting.sent_at && one.received_at < waiting.received_at }
    overtaking.group_by(&:client).select { |_, answers| answers.size > 1 }.keys
  end
end

# Alone, because its load uses the whole machine.
class BurstTest < Case
  shared_server workers: 2, threads: "1:5", app: WORKERS_APP

  it "passes ab -n 10000 -c 200" do
    skip "ab is not installed (apache2-utils)" unless system("which ab > /dev/null")
    out, err, status = Open3.capture3("ab", "-q", "-n", "10000", "-c", "200", server.url("/x"))
    assert status.success?, err
    assert_match(/^Complete requests:\s+10000$/, out)
    assert_match(/^Failed requests:\s+0$/, out)
    refute_match(/Non-2xx/, out)
  end

  it "passes ab -k -n 10000 -c 200" do
    skip "ab is not installed (apache2-utils)" unless system("which ab > /dev/null")
    out, err, status = Open3.capture3("ab", "-q", "-k", "-n", "10000", "-c", "200", server.url("/x"))
    assert status.success?, err
    assert_match(/^Failed requests:\s+0$/, out)
    refute_match(/Non-2xx/, out)
    assert_match(/^Keep-Alive requests:\s+10000$/, out) unless Server.puma?
  end

  it "serves 2,000 connections that are opened at once" do
    sockets = Array.new(2000) do
      socket = Socket.new(Socket::AF_INET, Socket::SOCK_STREAM)
      socket.connect_nonblock(Socket.sockaddr_in(server.port, "127.0.0.1"), exception: false)
      socket
    end
    sockets.each do |socket|
      assert socket.wait_writable(20), "a connection was not accepted"
      socket.write(request("GET", "/x", "Connection" => "close"))
    end
    answers = sockets.map { |socket| socket.wait_readable(20) ? socket.read[0, 12] : "nothing" }
    assert_equal({ "HTTP/1.1 200" => 2000 }, answers.tally)
  ensure
    sockets&.each(&:close)
  end
end
