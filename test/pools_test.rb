# frozen_string_literal: true

# Pools of workers: paths with workers, seats and a queue of their own, as seen by clients and operators.

require "support/case"
require "support/load"
require "support/reloading"

class PoolsTest < Case
  parallel!
  include Reloading

  APP = <<~'RUBY'
    version = File.exist?("version.txt") ? File.read("version.txt") : "one"
    run lambda { |env|
      case env["PATH_INFO"]
      when %r{/sleep\z} then sleep env["QUERY_STRING"].to_f
      when %r{/forever\z} then sleep
      end
      facts = [version, Process.pid, Fiber.scheduler ? "fiber" : "thread", env["rack.multithread"]]
      [200, { "content-type" => "text/plain" }, [facts.join(" ")]]
    }
  RUBY

  SLOW = { paths: ["/slow"], threads: 2, limits: { max_queue: 2 } }.freeze

  def server_with(pools = { slow: SLOW }, app: APP, more: {}, **options)
    start(app: app, settings: { pools: pools, reload: { watch: "0s" } }.merge(more), **options)
  end

  def rewrite(own, pools)
    File.write(own.path("firebrick.toml"), SettingsFile.render(pools: pools, reload: { watch: "0s" }))
  end

  def sleepers(own, count, path)
    Array.new(count) { connect(own, deadline: 60).write(request("GET", path)) }
  end

  def figures(own, pool = "slow")
    own.stats["pools"].find { |one| one["name"] == pool }
  end

  def workers(own)
    own.stats["workers"].group_by { |worker| worker["pool"] }.transform_values { |all| all.map { |worker| worker["pid"] }.sort }
  end

  # The app responds with these facts of a request: version, pid, thread or fiber, rack.multithread.
  def facts(own, path)
    get(path, to: own).body.split
  end

  it "keeps the seats of the default pool free while a pool is full, and refuses what exceeds its queue" do
    own = server_with(threads: "1:1")
    busy = sleepers(own, 2, "/slow/sleep?4")
    wait_until("both threads to be busy") { figures(own)["busy"] == 2 }
    waiting = sleepers(own, 2, "/slow/sleep?0")
    wait_until("two to wait") { figures(own)["length"] == 2 }
    refused = get("/slow/x", to: own)
    assert_status 503, refused
    20.times { assert_status 200, get("/", to: own) }
    assert_equal [2, 2, 1, 2], figures(own).values_at("busy", "length", "refused_full", "max")
    assert_equal [0, 0], figures(own, "default").values_at("length", "refused_full")
    blocked = connect(own).write(request("GET", "/sleep?1"))
    queued = sleepers(own, 1, "/x")
    assert_equal([200, 200], [blocked, *queued].map { |one| one.read_response.status })
    (busy + waiting).each { |one| assert_status 200, one.read_response }
    page = own.metrics
    assert_includes page, "firebrick_pool_refusals_total{pool=\"slow\",reason=\"full\"} 1\n"
    assert_includes page, "firebrick_pool_seats{pool=\"slow\"} 2\n"
  end

  it "refuses as the default pool does" do
    own = server_with({ slow: SLOW.merge(threads: 1, limits: { max_queue: 1 }) }, threads: "1:1", more: { limits: { max_queue: 1 } })
    answers = ["/slow", ""].map do |prefix|
      clients = sleepers(own, 2, "#{prefix}/sleep?2")
      wait_until("one to wait") { own.stats["queue"]["length"] == 1 }
      refused = get("#{prefix}/x", to: own)
      clients.each { |one| assert_status 200, one.read_response }
      [refused.status, refused.body, refused.headers.map(&:first)]
    end
    assert_equal 503, answers.first.first
    assert_equal answers.first, answers.last
  end

  it "gives each pool its workers, with threads or fibers of their own" do
    own = server_with({ slow: { paths: ["/slow"], workers: 2, threads: "1:3" }, streams: { paths: ["/events", "/slow/events"], fibers: 40 } },
                      threads: "1:1")
    assert_includes own.stdout, "* 1 worker x 1:1 threads"
    assert_includes own.stdout, "* Pool slow: 2 workers x 1:3 threads for /slow\n"
    assert_includes own.stdout, "* Pool streams: 1 worker x 40 fibers for /events, /slow/events\n"
    shapes = own.stats["workers"].map { |worker| worker.values_at("pool", "threads_max", "fibers") }
    assert_equal [["default", 1, 0], ["slow", 3, 0], ["slow", 3, 0], ["streams", 40, 40]], shapes.sort
    { "/" => %w[thread false], "/slow" => %w[thread true], "/events/1" => %w[fiber true], "/slow/events" => %w[fiber true],
      "/slower" => %w[thread false] }.each { |path, expected| assert_equal expected, facts(own, path).last(2), path }
    of = workers(own)
    { "/" => "default", "/slow" => "slow", "/events" => "streams" }.each do |path, pool|
      assert_includes of[pool], facts(own, path)[1].to_i
    end
    assert_match(/ slow +\d+ /, own.command_line("stats", own.dir).first)
    assert_match(/worker .*pool.*default.*slow.*streams/m, own.command_line("top", own.dir, "--once").first)
    titles = of.values.flatten.map { |pid| File.read("/proc/#{pid}/cmdline") }
    assert_equal(2, titles.count { |title| title.match?(/\Afirebrick: worker \d+ slow/) }, titles.inspect)
  end

  it "ends a wait and a request by the times of the pool" do
    own = server_with({ slow: { paths: ["/slow"], threads: 1, timeouts: { queue: "1s", worker: "3s" } } }, threads: "1:1")
    stuck = sleepers(own, 1, "/slow/forever").first
    wait_until("it to be served") { figures(own)["busy"] == 1 }
    assert_status 503, get("/slow", to: own)
    assert_equal 1, figures(own)["expired"]
    slow = sleepers(own, 1, "/sleep?5").first
    waiting = sleepers(own, 1, "/sleep?0").first
    assert_status 504, stuck.read_response
    assert_status 200, slow.read_response
    assert_status 200, waiting.read_response
    wait_until("another worker", within: 30) { get("/slow", to: own).status == 200 }
  end

  it "replaces a killed worker by one of its pool" do
    own = server_with({ slow: SLOW.merge(workers: 2), streams: { paths: ["/events"], fibers: 9 } })
    before = workers(own)
    before.each_value { |pids| Process.kill("KILL", pids.first) }
    wait_until("their successors", within: 30) do
      now = workers(own)
      now.transform_values(&:size) == before.transform_values(&:size) && now.none? { |pool, pids| pids.include?(before[pool].first) }
    end
    assert_equal before["slow"].last, (before["slow"] & workers(own)["slow"]).first
    assert_equal(%w[thread thread fiber], ["/", "/slow", "/events"].map { |path| facts(own, path)[2] })
  end

  it "takes new code over in every pool, and back, and fails no request" do
    own = server_with({ slow: SLOW.merge(workers: 2, limits: { max_queue: 50 }), streams: { paths: ["/events"], fibers: 9 } },
                      workers: 2, files: { "version.txt" => "one" })
    paths = ["/sleep?0.01", "/slow/sleep?0.01", "/events/sleep?0.01"]
    loads = paths.map { |path| Load.new(own.address, clients: 3, path: path).start }
    pids = [workers(own)]
    { [] => "two", ["--undo"] => "one" }.each do |args, version|
      deploy(own, version) if args.empty?
      assert_reloads(own, *args)
      assert_equal([version] * 3, paths.map { |path| facts(own, path)[0] })
      pids << workers(own)
      pids.combination(2) { |old, new| old.each { |pool, before| assert_empty before & new[pool], "#{pool} has new workers" } }
    end
    assert_equal([{ "default" => 2, "slow" => 2, "streams" => 1 }], pids.map { |one| one.transform_values(&:size) }.uniq)
    loads.each(&:stop)
    assert_empty loads.flat_map(&:errors)
    assert_equal [200], loads.flat_map { |load| load.completed.map(&:status) }.uniq
  end

  it "makes templates of warm workers, for all pools" do
    own = server_with({ slow: SLOW.merge(limits: { max_queue: 50 }), streams: { paths: ["/events"], fibers: 9 } }, workers: 2,
                                                                                                                   more: { rack: { refork_after: 20 }, reload: { keep: "0s", watch: "0s" } })
    before = workers(own)
    loads = ["/", "/slow", "/events"].map { |path| Load.new(own.address, clients: 2, path: path).start }
    assert wait_until(within: 60) { own.stderr.include?("refork: all workers were forked from a warm one") }, own.report
    loads.each(&:stop)
    assert_empty loads.flat_map(&:errors)
    workers(own).each { |pool, pids| assert_empty pids & before[pool], pool }
    assert_equal(%w[thread thread fiber], ["/", "/slow", "/events"].map { |path| facts(own, path)[2] })
  end

  it "takes paths and the number of workers over with a reload, and says what takes a restart" do
    own = server_with({ slow: SLOW, old: { paths: ["/old"] } })
    rewrite(own, slow: SLOW.merge(paths: ["/reports"], workers: 2, threads: 9), new: { paths: ["/new"] })
    assert_reloads(own)
    assert_logged(%r{warning: pools\.new \(/new\) takes effect only after a restart}, on: own)
    assert_logged(%r{warning: without pools\.old a restart is needed: its workers still serve /old}, on: own)
    assert_logged(/warning: threads of the pool slow takes effect only after a restart/, on: own)
    wait_until("two workers", within: 30) { workers(own)["slow"].size == 2 }
    wait_until("the new paths") { workers(own)["slow"].include?(facts(own, "/reports")[1].to_i) }
    assert_includes workers(own)["default"], facts(own, "/slow")[1].to_i
    assert_includes workers(own)["old"], facts(own, "/old")[1].to_i
    assert_equal [2], own.stats["workers"].select { |worker| worker["pool"] == "slow" }.map { |worker| worker["threads_max"] }.uniq
  end

  it "is shown by check" do
    own = server_with
    assert_match(%r{^ *pool +slow: 1 worker x 2:2 threads for /slow$}, own.command_line("check", own.dir).first)
  end
end
