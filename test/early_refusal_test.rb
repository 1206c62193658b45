# frozen_string_literal: true

# Requests that would wait longer than `timeouts.queue` are refused at once.

require "support/case"
require "support/load"

EARLY_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/wait" then sleep 0.1; [200, text, ["served"]]
    when "/ever" then sleep
    else [200, text, ["fine"]]
    end
  }
RUBY

class EarlyRefusalTest < Case
  parallel! slow: true

  def setup
    firebrick_only
  end

  def server(**settings)
    start(app: EARLY_APP, workers: 1, threads: "2:2", fibers: 1, settings: { timeouts: { queue: "2s" } }.merge(settings))
  end

  # Asserts that a client is refused at once, with the time that it should wait.
  def refused_at_once(own)
    wait_until("a refusal at once", within: 60, every: 0.1) do
      began = now
      response = get("/wait", to: own)
      next unless response.status == 503 && now - began < 1

      response
    end
  end

  it "responds at once, with the wait as Retry-After, counts it, and serves who was admitted" do
    own = server
    # The server handles 20 requests a second; 100 clients would wait for 5 s.
    load = Load.new(own.address, clients: 100, path: "/wait").start
    refused = refused_at_once(own)
    assert_operator Integer(refused["retry-after"]), :>=, 2
    assert_equal "503 Service Unavailable\n", refused.body
    load.stop
    assert_empty load.errors
    assert_equal [200, 503], load.completed.map(&:status).uniq.sort
    assert_logged(%r{503 for GET /wait: would wait for [\d.]+ s, longer than timeouts\.queue}, on: own)
    queue = own.stats["queue"]
    assert_operator queue["refused_early"], :>, 0
    assert_operator queue["longest"], :>=, 40
    assert_equal 0, queue["refused_full"]
    out, = own.command_line("stats", own.dir)
    assert_match(/^refused +[\d,]+ at once for the wait to come, [\d,]+ after waiting, 0 by a full queue$/, out)
    metrics = own.command_line("stats", own.dir, "--json").first
    assert_includes metrics, "refused_early"
    assert_status 200, get("/", to: own)
  end

  it "keeps the connection of a refused request usable" do
    own = server
    load = Load.new(own.address, clients: 100, path: "/wait").start
    refused_at_once(own)
    connection = connect(own)
    wait_until("another", within: 20) do
      connection.write(request("POST", "/wait", {}, "body"))
      connection.read_response("POST").status == 503
    end
    load.stop
    assert_alive(connection)
  end

  it "refuses nobody for a request that never ends" do
    own = start(app: EARLY_APP, workers: 1, threads: "1:1", fibers: 1, settings: { timeouts: { queue: "1s", shutdown: "1s" } })
    20.times { assert_status 200, get("/", to: own) }
    connect(own).write(request("GET", "/ever"))
    wait_until("it to be served") { own.stats["workers"].sum { |worker| worker["busy_threads"] } == 1 }
    3.times do
      began = now
      assert_status 503, get("/late", to: own)
      assert_operator now - began, :>=, 0.9, "it waits"
    end
    assert_equal [0, 3], own.stats["queue"].values_at("refused_early", "expired")
  end

  it "refuses nobody where it is turned off" do
    own = server(limits: { predict_wait: false })
    load = Load.new(own.address, clients: 100, path: "/wait").start
    wait_until("requests to wait in vain", within: 30) { own.stats["queue"]["expired"] > 50 }
    load.stop
    assert_equal 0, own.stats["queue"]["refused_early"]
  end

  it "refuses nobody of a burst that is served in time" do
    own = server(timeouts: { queue: "30s" })
    clients = Array.new(100) { connect(own).write(request("GET", "/wait")) }
    assert_equal [200], clients.map { |client| client.read_response.status }.uniq
    assert_equal 0, own.stats["queue"]["refused_early"]
  end
end
