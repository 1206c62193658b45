# frozen_string_literal: true

# /metrics: read by a strict parser of both formats, by promtool where it is installed, and compared with the requests made.

require "open3"
require "support/case"

class MetricsTest < Case
  parallel!

  APP = <<~RUBY
    run lambda { |env|
      sleep 0.02 until File.exist?("../go") if env["PATH_INFO"] == "/wait"
      status = env["PATH_INFO"][/\\d+/] || 200
      [Integer(status), { "content-type" => "text/plain" }, ["hello"]]
    }
  RUBY

  OPEN = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
  Family = Struct.new(:name, :type, :help, :unit, :samples)
  SUFFIXES = { "counter" => %w[_total], "gauge" => [""], "histogram" => %w[_bucket _sum _count] }.freeze

  def setup
    firebrick_only
  end

  # [head, body] of a scrape.
  def scrape(server, accept = nil)
    server.control_response("/metrics", accept ? "Accept: #{accept}\r\n" : "")
  end

  # Returns the families by name. Every violation of the formats fails the test.
  def parse(text, open:)
    assert text.end_with?("\n")
    lines = text.lines(chomp: true)
    assert_equal "# EOF", lines.pop if open
    families = {}
    current = nil
    lines.each do |line|
      if (match = /\A# (HELP|TYPE|UNIT) ([a-z_:][a-z0-9_:]*) (.+)\z/.match(line))
        kind, name, rest = match.captures
        if kind == "HELP"
          refute_includes families, name, "families stand together"
          current = families[name] = Family.new(name, nil, rest, nil, {})
        end
        assert_equal current.name, name
        current.type = rest if kind == "TYPE"
        current.unit = rest if kind == "UNIT"
      else
        match = /\A([a-z_:][a-z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)\z/.match(line)
        assert match, "not a sample: #{line}"
        name, labels, value = match.captures
        base = current.type == "counter" && !open ? current.name.delete_suffix("_total") : current.name
        assert SUFFIXES.fetch(current.type).any? { |suffix| name == base + suffix }, "#{line} is not of #{current.name}, a #{current.type}"
        key = [name, (labels || "").scan(/([a-z_]+)="((?:[^"\\]|\\.)*)"/).to_h]
        refute_includes current.samples, key, "twice: #{line}"
        current.samples[key] = Float(value)
      end
    end
    families.each_value { |family| check(family, open) }
  end

  def check(family, open)
    assert family.type, family.name
    assert_match(/\.\z/, family.help)
    assert family.name.end_with?("_#{family.unit}"), family.name if family.unit
    assert_equal open && family.name.match?(/_(seconds|bytes)\z/), !family.unit.nil?, family.name
    refute_empty family.samples, family.name
    return unless family.type == "histogram"

    buckets = family.samples.select { |(name, _), _| name.end_with?("_bucket") }
    bounds = buckets.keys.map { |_, labels| labels["le"] == "+Inf" ? Float::INFINITY : Float(labels["le"]) }
    assert_equal bounds.sort.uniq, bounds
    assert_equal Float::INFINITY, bounds.last
    assert_equal buckets.values.sort, buckets.values, "buckets are cumulative"
    assert_equal buckets.values.last, family.samples[["#{family.name}_count", {}]]
  end

  def value(families, name, labels = {})
    families.each_value.filter_map { |family| family.samples[[name, labels]] }.first
  end

  it "speaks both forms, with the same figures" do
    own = start(app: APP, workers: 2)
    3.times { get("/", to: own) }
    2.times { get("/404", to: own) }
    get("/500", to: own)
    assert(wait_until { own.stats["requests"]["total"] == 6 })
    head, body = scrape(own, OPEN)
    assert_match(%r{^content-type: application/openmetrics-text; version=1\.0\.0; charset=utf-8}i, head)
    open = parse(body, open: true)
    head, body = scrape(own)
    assert_match(%r{^content-type: text/plain; version=0\.0\.4; charset=utf-8}i, head)
    text = parse(body, open: false)
    assert_equal open.keys, (text.keys.map { |name| name.delete_suffix("_total") })
    [open, text].each do |families|
      counts = %w[1xx 2xx 3xx 4xx 5xx none].map { |status| value(families, "firebrick_requests_total", "status" => status) }
      assert_equal [0, 3, 0, 2, 1, 0], counts
      assert_equal 6, value(families, "firebrick_request_seconds_count")
      assert_equal 6, value(families, "firebrick_app_seconds_count")
      assert_operator value(families, "firebrick_request_seconds_sum"), :>, 0
      assert_equal 2, value(families, "firebrick_workers", "state" => "ready")
      assert_equal([10, 0, 1], %w[seats saturation ready].map { |name| value(families, "firebrick_#{name}") })
      assert_equal([2, 10, 10, 0], %w[workers max_threads pool_capacity backlog].map { |name| value(families, "puma_#{name}") })
      %w[front workers].each { |process| assert_operator value(families, "firebrick_memory_pss_bytes", "process" => process), :>, 1 << 20 }
      %w[0 1].each { |worker| assert_operator value(families, "firebrick_worker_pss_bytes", "worker" => worker), :>, 1 << 20 }
    end
  end

  it "passes promtool" do
    promtool = [*ENV["PATH"].split(":"), File.expand_path("~/go/bin")].map { |dir| File.join(dir, "promtool") }.find { |file| File.executable?(file) }
    skip "promtool is not installed (script/setup test)" unless promtool
    own = start(app: APP)
    get("/", to: own)
    out, status = Open3.capture2e(promtool, "check", "metrics", stdin_data: scrape(own).last)
    assert status.success? && out.empty?, out
  end

  it "shows saturation: what is served and what waits, by seats, in the last 15 s" do
    own = start(app: APP, threads: "2:2", workers: 1)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    waiting = Array.new(5) { connect(own).tap { |connection| connection.write(request("GET", "/wait")) } }
    wait_for_requests(5, on: own)
    families = nil
    now = lambda do
      families = parse(scrape(own, OPEN).last, open: true)
      [value(families, "firebrick_requests_in_flight", "stage" => "queue"), value(families, "firebrick_requests_in_flight", "stage" => "app"),
       value(families, "puma_backlog")]
    end
    assert(wait_until { now.call == [3, 2, 3] }, scrape(own).last)
    # The mean of 15 s, mostly from before the load, unless the machine was busy.
    assert_operator value(families, "firebrick_saturation"), :<, 2.5 if Process.clock_gettime(Process::CLOCK_MONOTONIC) - began < 10
    assert(wait_until(within: 60, every: 0.5) { own.metrics.include?("firebrick_saturation 2.5\n") }, -> { own.metrics })
  ensure
    FileUtils.touch(File.join(own.base, "go")) if own
    waiting&.each { |connection| assert_status 200, connection.read_response("GET") }
  end

  it "has no figures of workers for a static site" do
    own = start(files: { "index.html" => "x" }, workers: nil, threads: nil, environment: nil)
    families = parse(scrape(own, OPEN).last, open: true)
    assert_empty families.keys.grep(/puma|worker_/)
    assert_equal 0, value(families, "firebrick_saturation")
    assert_equal 1, value(families, "firebrick_ready")
  end

  it "counts reloads by outcome" do
    own = start(app: APP, workers: 1, settings: { reload: { watch: "0s", keep: "60s" } })
    counted = -> { parse(scrape(own, OPEN).last, open: true)["firebrick_reloads"].samples.to_h { |(_, labels), count| [labels["outcome"], count.to_i] } }
    assert_equal %w[done failed no_way_back reverted superseded undone], counted.call.keys.sort
    assert_equal 0, counted.call.values.sum
    [[], ["--undo"]].each { |args| assert_equal 0, own.command_line("reload", own.dir, *args).last, -> { own.report } }
    assert_equal({ "done" => 1, "undone" => 1 }, counted.call.select { |_, count| count.positive? })
  end

  it "counts upgrades and reforks by outcome, from the start" do
    own = start(app: APP, workers: 1)
    families = parse(scrape(own, OPEN).last, open: true)
    counted = ->(name) { families[name].samples.to_h { |(_, labels), count| [labels["outcome"], count.to_i] } }
    assert_equal({ "done" => 0, "failed" => 0 }, counted.call("firebrick_upgrades"))
    assert_equal({ "done" => 0, "failed" => 0, "reverted" => 0, "dropped" => 0 }, counted.call("firebrick_reforks"))
  end

  it "has counters that never fall, also when a worker is replaced" do
    own = start(app: APP, workers: 1)
    3.times { get("/", to: own) }
    assert(wait_until { own.stats["requests"]["total"] == 3 })
    counters = -> { parse(scrape(own, OPEN).last, open: true).values.select { |family| %w[counter histogram].include?(family.type) }.flat_map { |family| family.samples.to_a }.to_h }
    before = counters.call
    worker = own.stats["workers"].first["pid"]
    Process.kill("KILL", worker)
    assert wait_until(within: 30) { own.stats["workers"].any? { |one| one["state"] == "ready" && one["pid"] != worker } }
    get("/", to: own)
    after = counters.call
    fallen = before.reject { |key, count| after[key] && after[key] >= count }
    assert_empty fallen
  end
end
