# frozen_string_literal: true

# Fibers for some paths, and threads for all others, as seen by clients and operators.

require "support/case"
require "support/load"
require "support/reloading"

class FiberPathsTest < Case
  parallel!
  include Reloading

  # The same actions below `/slow` and elsewhere: name the server's kind of strand, wait, end the process, or go on after the response.
  APP = <<~'RUBY'
    text = { "content-type" => "text/plain" }
    who = -> { Fiber.scheduler ? "fiber" : "thread" }
    upgrade = { "connection" => "upgrade", "upgrade" => "websocket" }
    run lambda { |env|
      case env["PATH_INFO"].delete_prefix("/slow")
      when %r{\A/sleep} then sleep env["QUERY_STRING"].to_f; [200, text, [who.call]]
      when %r{\A/forever} then sleep
      when %r{\A/pid} then [200, text, [Process.pid.to_s]]
      when %r{\A/count} then File.write("count.log", "x", mode: "a"); [200, text, [Process.pid.to_s]]
      when %r{\A/end-thread} then Thread.current.kill
      when %r{\A/events}
        body = ->(stream) { 3.times { |n| stream.write("data: #{n} #{who.call}\n\n"); sleep 0.05 }; stream.close }
        [200, { "content-type" => "text/event-stream" }, body]
      when %r{\A/full}
        io = env["rack.hijack"].call
        io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n#{who.call}")
        io.write(io.read(4)).then { io.close }
        [200, {}, []]
      when %r{\A/partial}
        [101, upgrade.merge("rack.hijack" => ->(io) { io.write(who.call); io.write(io.read(4)); io.close }), []]
      else [200, text, [who.call]]
      end
    }
  RUBY

  def settings_with(paths, fibers, more)
    { fibers: fibers, fiber_paths: paths }.compact.merge(more)
  end

  def server_with(paths = ["/slow"], fibers: 10, threads: "1:2", app: APP, more: {}, **options)
    start(app: app, threads: threads, settings: settings_with(paths, fibers, more), **options)
  end

  def who(path, to:)
    get(path, to: to).body
  end

  def sleepers(own, count, path)
    Array.new(count) { connect(own).write(request("GET", path)) }
  end

  # The busy seats of all workers: threads, fibers.
  def busy(own)
    of_fibers, others = own.stats["workers"].partition { |worker| worker["fiber_paths"] }
    [others, of_fibers].map { |workers| workers.sum { |worker| worker["busy_threads"] } }
  end

  def busy_with(own, threads, fibers)
    wait_until("#{threads} threads and #{fibers} fibers to be busy", within: 20) { busy(own) == [threads, fibers] } or
      flunk("busy are #{busy(own)}\n#{own.report}")
  end

  def bodies(connections)
    connections.map { |one| one.read_response.body }
  end

  it "serves the requests below the paths with fibers, and all others with threads" do
    own = server_with
    assert_includes own.stdout, "* 1 worker x 1:2 threads"
    assert_includes own.stdout, "* Pool fibers: 1 worker x 10 fibers for /slow"
    { "/slow" => "fiber", "/slow/" => "fiber", "/slow/x?y" => "fiber", "/" => "thread", "/slowly" => "thread", "/x/slow" => "thread",
      "/%73low" => "thread", "/slow%2Fx" => "thread", "//slow" => "thread", "/Slow" => "thread" }.each do |path, expected|
      assert_equal expected, who(path, to: own), path
    end
  end

  it "takes several paths, of a flag and a variable too, and all of them" do
    { ["--fiber-paths", "/a,/b/c/"] => %w[/a/1 /b/c], ["--fiber-paths", "/a", "--fiber-paths", "/b"] => %w[/a /b] }.each do |args, paths|
      own = server_with(nil, args: args)
      assert_equal(%w[fiber fiber thread], [*paths, "/c"].map { |path| who(path, to: own) })
    end
    own = server_with(nil, env: { "FIREBRICK_FIBER_PATHS" => "/" })
    assert_equal(%w[fiber fiber], ["/", "/x/y"].map { |path| who(path, to: own) })
    own = server_with(args: ["--fiber-paths", ""], threads: "1:1")
    assert_includes own.stdout, "1:1 threads x 10 fibers", "the flag takes the list of the file back"
  end

  it "lets neither kind of request wait for the other" do
    own = server_with(fibers: 5, threads: "2:2")
    slow = sleepers(own, 8, "/slow/sleep?2")
    busy_with(own, 0, 5)
    20.times { assert_equal "thread", who("/", to: own) }
    assert_equal [0, 5], busy(own), "they still sleep"
    others = sleepers(own, 4, "/sleep?2")
    assert_equal %w[fiber] * 8, bodies(slow)
    20.times { assert_equal "fiber", who("/slow", to: own) }
    assert_equal %w[thread] * 4, bodies(others)
  end

  it "refuses what exceeds the queue of one kind, and that kind only" do
    own = server_with(fibers: 1, threads: "1:1", more: { limits: { max_queue: 2 } })
    { "/slow" => "", "" => "/slow" }.each do |full, free|
      waiting = sleepers(own, 3, "#{full}/sleep?3")
      wait_until("two to wait") { own.stats["queue"]["length"] == 2 }
      assert_equal(full.empty? ? 0 : 2, own.stats["queue"]["for_fibers"])
      assert_status 503, get("#{full}/x", to: own)
      assert_status 200, get("#{free}/x", to: own)
      waiting.each { |one| assert_status 200, one.read_response }
    end
    assert_equal 2, own.stats["queue"]["refused_full"]
  end

  it "shows both kinds of seats" do
    own = server_with(fibers: 7, threads: "2:3", workers: 2)
    sleeping = sleepers(own, 3, "/slow/sleep?4") + sleepers(own, 2, "/sleep?4")
    busy_with(own, 2, 3)
    default, fibers = own.stats["workers"].group_by { |worker| worker["pool"] }.values_at("default", "fibers")
    assert_equal([[3, 0, nil], [3, 0, nil]], default.map { |worker| worker.values_at("threads_max", "fibers", "fiber_paths") })
    assert_equal([[7, 7, 7, 1]] * 2, fibers.map { |worker| [*worker.values_at("threads_max", "fibers"), worker["fiber_paths"]["max"], worker["threads_started"]] })
    text = own.command_line("stats", own.dir).first
    assert_match(%r{ fibers .* [12]/7 }, text)
    assert_match(/0 waiting \(0 for fibers\)/, text)
    page = own.metrics
    assert_includes page, "firebrick_seats 20\n"
    assert_includes page, "firebrick_fiber_seats 14\n"
    assert_includes page, "firebrick_fiber_requests{stage=\"app\"} 3\n"
    assert(wait_until { own.metrics.match?(/^firebrick_saturation 0\.\d/) })
    assert_match(%r{busy seats.* 1/3 .*fibers.* [12]/7 }m, own.command_line("top", own.dir, "--once").first)
    assert_equal(%w[fiber fiber fiber thread thread], bodies(sleeping))
  end

  it "shows no second kind without the setting" do
    own = start(app: APP, threads: "1:2", settings: { fibers: 7 })
    assert_nil own.stats["workers"].first["fiber_paths"]
    assert_nil own.stats["queue"]["for_fibers"]
    refute_includes own.metrics, "firebrick_fiber_"
    assert_match(%r{busy fibers.* 0/14 }m, own.command_line("top", own.dir, "--once").first)
  end

  it "takes a new list over with a reload" do
    own = server_with(more: { reload: { watch: 0 } })
    kinds = -> { [who("/slow", to: own), who("/other", to: own)] }
    assert_equal %w[fiber thread], kinds.call
    sleeping = sleepers(own, 3, "/slow/sleep?1.5")
    busy_with(own, 0, 3)
    File.write(own.path("firebrick.toml"), SettingsFile.render(settings_with(["/other"], 10, { reload: { watch: 0 } })))
    assert_reloads(own)
    # A front thread gets new settings after the reload.
    assert wait_until("the new list") { kinds.call == %w[thread fiber] }
    assert_equal %w[fiber] * 3, bodies(sleeping)
  end

  it "says that it takes a restart to have fibers beside threads, or to have none" do
    some, none = [["/slow"], nil].map { |paths| settings_with(paths, 10, { reload: { watch: 0 } }) }
    { [none, some] => %r{warning: fiber_paths \(/slow\) takes effect only after a restart},
      [some, none] => %r{warning: without fiber_paths a restart is needed: fibers still serve /slow} }.each do |(before, after), words|
      own = start(app: APP, threads: "1:1", settings: before)
      expected = before == some ? %w[fiber thread] : %w[fiber fiber]
      File.write(own.path("firebrick.toml"), SettingsFile.render(after))
      2.times do
        assert_reloads(own)
        assert_logged(words, on: own)
        assert_equal(expected, %w[/slow /].map { |path| who(path, to: own) })
      end
    end
  end

  it "warns of paths while fibers are off, and serves them with threads" do
    own = server_with(fibers: "off")
    assert_match(/warning: fiber_paths \(\S*firebrick\.toml:2\) has no effect, because fibers is off \(\S*firebrick\.toml:1\)/, own.stderr + own.stdout)
    assert_equal "thread", who("/slow", to: own)
  end

  it "has links to as many as 64 front threads" do
    own = server_with(fibers: 50, workers: 2, more: { front_threads: 64 })
    sleeping = sleepers(own, 60, "/slow/sleep?1.5")
    others = Array.new(60) { who("/", to: own) }
    assert_equal %w[thread], others.uniq
    assert_equal %w[fiber], bodies(sleeping).uniq
  end

  it "loses what a killed worker had begun, of both kinds, and serves the rest by the next one" do
    own = server_with(fibers: 2, threads: "1:1")
    pids = %w[/slow/pid /pid].map { |path| who(path, to: own).to_i }
    begun = sleepers(own, 2, "/slow/forever") + sleepers(own, 1, "/forever")
    busy_with(own, 1, 2)
    queued = sleepers(own, 3, "/slow/sleep?0") + sleepers(own, 3, "/sleep?0")
    wait_until("they wait") { own.stats["queue"]["length"] == 6 }
    pids.each { |pid| Process.kill("KILL", pid) }
    begun.each { |one| assert_status 502, one.read_response }
    assert_equal %w[fiber fiber fiber thread thread thread], bodies(queued)
    begun = pids.map { |pid| own.control("/deaths").find { |one| one["pid"] == pid }["in_flight"].map { |one| one["path"] } }
    assert_equal [["/slow/forever", "/slow/forever"], ["/forever"]], begun
  end

  it "ends the wait of clients that leave a fiber" do
    own = server_with(fibers: 5)
    clients = sleepers(own, 5, "/slow/forever")
    busy_with(own, 0, 5)
    clients.each(&:close)
    busy_with(own, 0, 0)
    assert_equal "fiber", who("/slow", to: own)
  end

  it "answers 504 to what takes too long, keeps the worker for a fiber that waits, and replaces it for a thread" do
    own = server_with(more: { timeouts: { worker: 2 } })
    fibers, threads = %w[/slow/pid /pid].map { |path| who(path, to: own) }
    assert_status 504, get("/slow/forever", to: own)
    busy_with(own, 0, 0)
    assert_equal fibers, who("/slow/pid", to: own)
    slow = sleepers(own, 1, "/slow/sleep?1").first
    assert_status 504, get("/forever", to: own)
    assert_equal "fiber", slow.read_response.body
    wait_until("another worker", within: 30) { who("/pid", to: own) != threads }
    assert_equal fibers, who("/slow/pid", to: own)
  end

  it "serves with fibers again when the app has killed their thread" do
    own = server_with
    2.times do
      get("/slow/end-thread", to: own)
      assert_equal(%w[fiber thread], %w[/slow /].map { |path| who(path, to: own) })
    end
  end

  it "streams events, and hands sockets to the app, on fibers and on threads" do
    own = server_with(threads: "3:3")
    { "/slow" => "fiber", "" => "thread" }.each do |prefix, kind|
      assert_equal Array.new(3) { |n| "data: #{n} #{kind}\n\n" }.join, get("#{prefix}/events", to: own).body
      %w[full partial].each do |way|
        socket = connect(own).write(request("GET", "#{prefix}/#{way}", { "Connection" => "upgrade", "Upgrade" => "websocket" }))
        assert_equal 101, socket.read_head.status
        assert_equal kind, socket.read_exactly(kind.size)
        socket.write("echo")
        assert_equal "echo", socket.read_exactly(4)
      end
    end
    busy_with(own, 0, 0)
  end

  it "finishes both kinds of requests before it ends" do
    own = server_with
    sleeping = sleepers(own, 3, "/slow/sleep?1.5") + sleepers(own, 1, "/sleep?1")
    busy_with(own, 1, 3)
    own.signal("TERM")
    assert_equal %w[fiber fiber fiber thread], bodies(sleeping)
    assert_equal 0, own.wait_exit
  end

  it "finishes threads that outlast the fibers" do
    own = server_with(threads: "1:1")
    sleeping = sleepers(own, 1, "/slow/sleep?0.5") + sleepers(own, 1, "/sleep?1.5")
    busy_with(own, 1, 1)
    own.signal("TERM")
    assert_equal %w[fiber thread], bodies(sleeping)
    assert_equal 0, own.wait_exit
  end

  it "replaces workers under load of both kinds, and loses nothing" do
    own = server_with(fibers: 20, workers: 2, more: { reload: { watch: 0 } })
    loads = ["/slow/sleep?0.01", "/"].map { |path| Load.new(own.address, clients: 4, path: path).start }
    3.times { assert_reloads(own) }
    loads.each(&:stop)
    assert_empty loads.flat_map(&:errors)
    assert_equal [200], loads.flat_map { |load| load.completed.map(&:status) }.uniq
    assert_equal(%w[fiber thread], loads.map { |load| load.completed.last.body })
  end

  it "makes templates of warm workers again and again" do
    own = server_with(fibers: 20, threads: "2:2", workers: 2, more: { rack: { refork_after: [20, 20] }, reload: { keep: 0, watch: 0 } })
    loads = ["/slow/sleep?0.01", "/"].map { |path| Load.new(own.address, clients: 3, path: path).start }
    assert wait_until(within: 60) { own.stderr.scan("refork: all workers were forked from a warm one").size >= 2 }, own.report
    loads.each(&:stop)
    assert_empty loads.flat_map(&:errors)
    assert_equal [200], loads.flat_map { |load| load.completed.map(&:status) }.uniq
    assert_equal %w[fiber thread], [who("/slow", to: own), who("/", to: own)]
  end

  it "takes what a stopped worker has not begun back, of both kinds" do
    own = server_with(fibers: 20, workers: 2, threads: "1:3")
    victims = %w[/slow/pid /pid].map { |path| who(path, to: own).to_i }
    victims.each { |victim| Process.kill("STOP", victim) }
    clients = sleepers(own, 6, "/slow/count") + sleepers(own, 4, "/count")
    clients.each { |client| assert_status 200, client.read_response }
    wait_until("the workers to be killed", within: 60) { victims.none? { |victim| Processes.alive?(victim) } }
    assert_equal 10, File.size(own.path("count.log"))
  end
end
