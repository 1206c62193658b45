# frozen_string_literal: true

# The queue serves waiting requests in turn by client, and classes of requests by weight.

require "support/http2_case"
require "support/load"
require "support/reloading"

class FairQueueTest < Http2Case
  parallel! slow: true
  include Reloading

  # 20 ms of waiting for something else; two seats serve 100 requests per second.
  APP = <<~'RUBY'
    text = { "content-type" => "text/plain" }
    run lambda { |env|
      sleep(env["QUERY_STRING"].empty? ? 0.02 : env["QUERY_STRING"].to_f)
      [200, text, ["served"]]
    }
  RUBY
  SEATS = {
    "threads" => { workers: 1, threads: "2:2", fibers: 1 },
    "two workers" => { workers: 2, threads: "1:1", fibers: 1 },
    "fibers" => { workers: 1, threads: "1:1", fibers: 2 }
  }.freeze
  GREEDY = 200
  OTHER = { "X-Forwarded-For" => "192.0.2.7" }.freeze

  def server(seats = "threads", fair: nil, classes: nil, pools: nil, **settings)
    queue = { fair: fair, classes: classes }.compact
    start(app: APP, settings: { queue: queue, pools: pools }.reject { |_, value| value.nil? || value.empty? }.merge(settings), **SEATS.fetch(seats))
  end

  # Returns the seconds that each of these requests takes, sent one after the other on one connection.
  def times(own, count, headers: OTHER, path: "/", connection: connect(own, deadline: 60))
    Array.new(count) do
      elapsed do
        connection.write(request("GET", path, headers))
        assert_status 200, connection.read_response
      end
    end
  end

  def http2_times(own, count)
    client = http2(own, deadline: 60)
    Array.new(count) { elapsed { assert_equal 200, client.get("/", headers: { "x-forwarded-for" => "192.0.2.7" }).status } }
  end

  def median(times)
    times.sort[times.size / 2]
  end

  def p99(times)
    times.sort[(times.size * 0.99).ceil - 1]
  end

  # Starts clients of one address that always have requests waiting.
  def greedy(own, path: "/", clients: GREEDY)
    load = Load.new(own.address, clients: clients, path: path).start
    wait_until("requests to wait", within: 30) { own.stats["queue"]["length"] >= clients / 2 }
    load
  end

  # Asserts that a client with one request at a time is served in turn. A single long time may be that of a busy machine.
  def assert_in_turn(alone, beside, greedy)
    text = -> { "alone #{median(alone)} s, beside others #{median(beside)} s (#{p99(beside)} s), those #{median(greedy)} s" }
    assert_operator median(beside), :<=, 3 * median(alone), text
    assert_operator p99(beside), :<=, median(greedy) / 3, text
    puts text.call if ENV.key?("TEST_FIGURES")
  end

  SEATS.each_key do |seats|
    it "serves another client in turn beside 200 connections, with #{seats}" do
      own = server(seats)
      alone = times(own, 60)
      load = greedy(own)
      beside = times(own, 100)
      load.stop
      assert_in_turn(alone, beside, load.completed.map { |one| one.received_at - one.sent_at })
      assert_empty load.errors
      assert_equal [200], load.completed.map(&:status).uniq
    end
  end

  it "serves another client in turn beside 2,000 streams of one client" do
    own = server
    alone = http2_times(own, 60)
    begun = now
    clients = Array.new(20) { http2(own, deadline: 60) }
    clients.each { |client| 100.times { client.request("/") } }
    wait_until("the streams to wait", within: 30) { own.stats["queue"]["length"] >= 1_500 }
    beside = http2_times(own, 100)
    assert_operator own.stats["queue"]["length"], :>=, 200, "they still wait"
    assert_in_turn(alone, beside, [now - begun])
  end

  it "serves all in order of arrival when fair is off" do
    own = server(fair: "off")
    load = greedy(own)
    assert_operator times(own, 2).min, :>=, 0.5
    load.stop
    assert_equal 1, own.stats["queue"]["longest"].clamp(0, 1)
  end

  it "counts by connection's address, by header, by cookie and by host" do
    own = server(fair: "header:X-Tenant")
    load = greedy(own)
    assert_operator times(own, 5, headers: { "X-Tenant" => "other" }).min, :<=, 0.3, "another tenant"
    assert_operator times(own, 1, headers: {}).min, :>=, 0.5, "the same address, without a tenant"
    load.stop
    own = server(fair: "cookie:tenant")
    load = greedy(own)
    assert_operator times(own, 5, headers: { "Cookie" => "a=1; tenant=other" }).min, :<=, 0.3
    load.stop
    own = server(fair: "host")
    load = greedy(own)
    assert_operator times(own, 5, headers: { "Host" => "other.test" }).min, :<=, 0.3
    load.stop
    own = server(rack: { trusted_proxies: ["none"] })
    load = greedy(own)
    assert_operator times(own, 1).min, :>=, 0.5, "a proxy that is not trusted cannot name a client"
    load.stop
  end

  it "takes turns in each pool, by what the pool says" do
    own = server(pools: { slow: { paths: "/slow", threads: 2, queue: { fair: "off" } } })
    load = greedy(own, path: "/slow")
    assert_operator times(own, 2, path: "/slow/x").min, :>=, 0.5, "in order of arrival"
    load.stop
    load = greedy(own)
    assert_operator times(own, 5).min, :<=, 0.3, "in turn"
    load.stop
  end

  it "shows the clients that wait in stats and top, and none of their addresses in metrics" do
    own = server(classes: { api: { paths: "/api", weight: 3 } })
    load = greedy(own)
    others = Array.new(100) { connect(own, deadline: 60).write(request("GET", "/api", OTHER)) }
    stats = wait_until("both clients to wait") { own.stats.then { |all| all if all["waiters"].size >= 2 } }
    first = stats["waiters"].first
    assert_equal ["127.0.0.1", "default", "default"], first.values_at("client", "pool", "class")
    assert_operator first["waiting"], :>=, 150
    assert_operator first["served"], :<=, 2
    assert_operator stats.dig("queue", "most_of_client"), :>=, 150
    assert_operator stats.dig("queue", "clients"), :>=, 2
    assert_equal(%w[default api], stats["queue_classes"].map { |one| one["name"] })
    out, = own.command_line("stats", own.dir)
    assert_match(/^waiting +\d clients?\n +127\.0\.0\.1: \d+ waiting, the first for [\d.]+ ms, [012] at workers$/, out)
    assert_match(/^classes +default: weight 1, \d+ waiting of 1 clients, /, out)
    top, = own.command_line("top", own.dir, "--once", "--interval", "200ms")
    assert_match(/^Waiting 127\.0\.0\.1 \d+/, top)
    metrics = own.metrics
    assert_match(/^firebrick_queue_clients \d/, metrics)
    assert_match(/^firebrick_queue_class_served_total\{class="default"\} \d+/, metrics)
    refute_includes metrics, "127.0.0.1"
    load.stop
    others.each { |connection| assert_status 200, connection.read_response }
    assert_empty own.stats["waiters"]
  end

  it "gives classes their share, and crawlers the last lane" do
    classes = { crawlers: { crawlers: true }, paid: { header: "X-Plan: pro", weight: 9 } }
    own = server(classes: classes, fair: "off")
    load = greedy(own)
    assert_operator times(own, 5, headers: { "X-Plan" => "pro" }).min, :<=, 0.3, "its class has nine tenths"
    assert_operator times(own, 1, headers: { "X-Plan" => "free" }).min, :>=, 0.5
    agent = { "User-Agent" => "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)" }
    crawler = connect(own, deadline: 60).write(request("GET", "/", agent))
    wait_until("it to wait") { own.stats["queue_classes"].any? { |one| one["name"] == "crawlers" && one["waiting"] == 1 } }
    before = load.completed.size
    wait_until("many others to be served", within: 30) { load.completed.size >= before + 250 }
    assert_equal 1, own.stats["queue_classes"].find { |one| one["name"] == "crawlers" }["waiting"]
    load.stop
    assert_status 200, crawler.read_response
  end

  it "refuses the newest request of the client that fills the queue" do
    own = server(limits: { max_queue: 20 })
    held = Array.new(2) { connect(own, deadline: 60).write(request("GET", "/?8")) }
    wait_until("both seats to be taken") { own.stats["workers"].sum { |one| one["busy_threads"] } == 2 }
    greedy = Array.new(20) { connect(own, deadline: 60).write(request("GET", "/?0")) }
    wait_until("them to wait") { own.stats["queue"]["length"] == 20 }
    assert_status 503, get("/?0", to: own)
    other = connect(own, deadline: 60).write(request("GET", "/?0", OTHER))
    readable, = IO.select(greedy.map(&:socket), nil, nil, 5)
    refused = greedy.find { |connection| connection.socket == readable&.first }
    assert_status 503, refused.read_response
    assert_logged(/503 for GET .*: max_queue requests are waiting, most of them of this client/, on: own)
    (held + (greedy - [refused]) + [other]).each { |connection| assert_status 200, connection.read_response }
    assert_equal 2, own.stats["queue"]["refused_full"]
  end

  it "predicts the wait of each client by itself" do
    own = server(timeouts: { queue: "1s" })
    load = Load.new(own.address, clients: GREEDY).start
    wait_until("a refusal of the greedy client", within: 60, every: 0.1) { own.stats["queue"]["refused_early"].positive? }
    connection = connect(own, deadline: 60)
    30.times { times(own, 1, connection: connection) }
    load.stop
    assert_operator own.stats["queue"]["refused_early"], :>, 0
  end

  it "changes with a reload" do
    own = server(fair: "off", reload: { watch: "0s" })
    rewrite = { queue: { fair: "address", classes: { api: { paths: "/api", weight: 2 } } }, reload: { watch: "0s" } }
    File.write(own.path("firebrick.toml"), SettingsFile.render(rewrite))
    assert_reloads(own)
    wait_until("the class") { own.stats["queue_classes"].map { |one| one["name"] } == %w[default api] }
    load = greedy(own)
    assert_operator times(own, 5).min, :<=, 0.3
    load.stop
  end
end
