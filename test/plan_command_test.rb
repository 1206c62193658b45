# frozen_string_literal: true

# `firebrick plan`: from facts that are given, logged, measured or read from a running server, to sizes and costs.

require "support/case"
require "rbconfig"
require "yaml"

class PlanCommandTest < Case
  parallel!

  # Each request waits for 50 ms and uses hardly any CPU.
  SLEEPER = 'run ->(env) { sleep 0.05; [200, { "content-type" => "text/plain" }, ["ok"]] }'

  def setup
    firebrick_only
    @folder = File.realpath(Dir.mktmpdir("firebrick-plan"))
  end

  def teardown
    FileUtils.remove_entry(@folder) if @folder
  end

  def plan(*args, input: "")
    out, err, status = Open3.capture3(Server.ruby_files, Server.binary, "plan", *args, stdin_data: input, chdir: @folder)
    [out, err, status.exitstatus]
  end

  def planned(*args, **options)
    out, err, code = plan(*args, "--json", **options)
    assert_includes [0, 1], code, err
    JSON.parse(out)
  end

  def write(name, content)
    File.write(File.join(@folder, name), content)
  end

  MANUAL = ["--rate", "375/min", "--response-time", "7ms"].freeze

  it "gives the result in its first line" do
    out, err, code = plan(*MANUAL)
    assert_equal [0, ""], [code, err]
    assert_equal "1 instance is enough: it could handle 22 times this rate.", out.lines.first.chomp
  end

  it "fits on a screen" do
    out, = plan(*MANUAL, "--slo", "p95<100ms", "--workers", "2", "--threads", "5", "--instance-cost", "$7/month", "--p95", "20ms")
    assert_operator out.lines.size, :<=, 48, out
    assert_operator out.lines.map { |line| line.chomp.size }.max, :<=, 100, out
  end

  it "agrees with textbooks" do
    # Ten servers, 8 Erlang: a request waits with probability 0.409.
    answer = planned("--rate", "8/s", "--response-time", "1s", "--threads", "10", "--instances", "1")["answers"].first
    assert_in_delta 0.409, answer["load"]["times"]["waits"], 0.0005
    # M/M/1 at 80 % load: the wait is four service times, the response time five.
    answer = planned("--rate", "8/s", "--response-time", "100ms", "--instances", "1")["answers"].first
    assert_in_delta 400, answer["load"]["times"]["wait_mean_ms"], 1
    assert_in_delta 500, answer["load"]["times"]["mean_ms"], 1
    assert_in_delta 1498, answer["load"]["times"]["p95_ms"], 15
  end

  it "shows its formulas with numbers filled in" do
    out, = plan(*MANUAL, "--explain")
    ["L = λ x S", "6.25/s x 7 ms = 0.0437", "Erlang C (1917)", "Little"].each { |words| assert_includes out, words }
  end

  it "compares sizes, the cheapest first" do
    sizes = ["--size", "large:4x5:25/month", "--size", "small:2x5:7/month"]
    out, = plan("--rate", "100/s", "--response-time", "100ms", *sizes)
    assert_match(/\A2 instances of `small`.*enough and cheapest: 14 per month/, out)
    answers = planned("--rate", "100/s", "--response-time", "100ms", *sizes)["answers"]
    assert_equal(%w[small large], answers.map { |answer| answer["size"]["name"] })
  end

  it "exits with 1 when the instances do not suffice" do
    out, _, code = plan("--rate", "500/s", "--response-time", "7ms", "--instances", "2")
    assert_equal 1, code
    assert_match(/not enough.*5 instances are needed/, out)
    _, _, code = plan(*MANUAL, "--slo", "p99<5ms")
    assert_equal 1, code
  end

  {
    "nothing" => [[], %r{--rate 375/min}],
    "no time" => [["--rate", "5/s"], /--response-time 7ms/],
    "no requests" => [["--rate", "0/s", "--response-time", "7ms"], %r{0 requests per second need no server: give the busiest minute's rate, e\.g\. 375/min}],
    "a negative rate" => [["--rate", "-5/s", "--response-time", "7ms"], %r{--rate: `-5/s`: a rate cannot be negative}],
    "a rate without a unit" => [["--rate", "375", "--response-time", "7ms"], %r{375/s, 375/min or 375/h}],
    "a time without a unit" => [["--rate", "5/s", "--response-time", "7"], /7ms or 7s/],
    "something that is not a number" => [["--rate", "NaN/s", "--response-time", "7ms"], /is not a rate/],
    "an infinite number" => [["--rate", "5/s", "--response-time", "inf"], /is not a time/],
    "an absurd rate" => [["--rate", "9e9/s", "--response-time", "7ms"], /--rate/],
    "an absurd time" => [["--rate", "5/s", "--response-time", "100h"], /more than a day/],
    "a percentile below the mean" => [[*MANUAL, "--p95", "3ms"], /below the mean/],
    "an impossible percentile" => [[*MANUAL, "--p95", "7s"], /is impossible/],
    "a negative variation" => [[*MANUAL, "--cv", "-1"], /--cv/],
    "no workers" => [[*MANUAL, "--workers", "0"], /at least 1/],
    "a price without a time" => [[*MANUAL, "--instance-cost", "7"], %r{7/month or 7/h}],
    "an invalid objective" => [[*MANUAL, "--slo", "fast"], /p95<200ms/],
    "an invalid size" => [[*MANUAL, "--size", "small"], %r{small:2x5:7/month}],
    "a percentage without %" => [[*MANUAL, "--headroom", "30"], /30%/],
    "a missing file" => [["--from", "nowhere.json"], /there is no nowhere\.json/],
    "an unknown flag" => [["--respose-time", "7ms"], /--response-time/]
  }.each do |what, (args, words)|
    it "reports a mistake when given #{what}" do
      out, err, code = plan(*args)
      assert_equal [2, ""], [code, out], err
      assert_match words, err
    end
  end

  def log(requests)
    (0...requests).map do |i|
      minute, second = (i / 10).divmod(60)
      app = i.even? ? "0.0200" : "0.0400"
      format("1.2.3.4 - - [20/Nov/2026:16:%02d:%02d +0000] \"GET /%d HTTP/1.1\" 200 5 \"-\" \"x\" 0.0500 0.0010 %s\n", minute, second, i, app)
    end.join
  end

  it "reads access logs, from files and from standard input" do
    write("access.log", log(1_800))
    [planned("--from", "access.log"), planned("--from", "-", input: log(1_800))].each do |found|
      assert_in_delta 10, found["facts"]["rate_per_s"], 0.01
      assert_in_delta 30, found["facts"]["response_ms"], 0.01
      assert_in_delta 1.0 / 3, found["facts"]["cv"], 0.01
      assert_match(/busiest minute/, found["facts_from"]["rate"])
    end
    assert_in_delta 2, planned("--from", "access.log", "--rate", "2/s")["facts"]["rate_per_s"]
  end

  it "reports lines that it cannot parse" do
    write("poem.txt", "Tyger Tyger, burning bright\n")
    write("other.json", '{"kind": "something else"}')
    write("broken.json", "{\n\"kind\": \"firebrick bench\",\n")
    write("empty.log", "")
    [["poem.txt", /Tyger/], ["other.json", /something else/], ["broken.json", /JSON/], ["empty.log", /empty/]].each do |file, words|
      _, err, code = plan("--from", file)
      assert_equal 2, code
      assert_match words, err
    end
  end

  it "reads the history of a running server, and watches it" do
    own = start(app: SLEEPER, workers: 2, threads: "3:3")
    120.times.each_slice(6) { |slice| slice.map { Thread.new { get("/", to: own) } }.each(&:join) }
    sleep 1.2 # the time since the start counts from a second on
    out, err, code = own.command_line("plan", "--from", own.dir, "--json")
    assert_equal 0, code, err
    found = JSON.parse(out)
    assert_operator found["facts"]["response_ms"], :>=, 49
    assert_operator found["facts"]["cv"], :<, 1
    size = found["answers"].first["size"]
    assert_equal [2, 3], [size["workers"], size["threads"]]
    assert_operator found["facts"]["rate_per_s"], :>, 0

    asking = Thread.new { 200.times { get("/", to: own) } }
    out, err, = own.command_line("plan", "--from", own.dir, "--look", "2s", "--json")
    asking.kill
    rate = JSON.parse(out)["facts"]["rate_per_s"]
    assert_operator rate, :>, 1, err
    assert_operator rate, :<=, 20
  end

  it "writes values for the chart from a running server" do
    own = start(app: SLEEPER, workers: 2, threads: "3:3")
    120.times.each_slice(6) { |slice| slice.map { Thread.new { get("/", to: own) } }.each(&:join) }
    out, err, code = own.command_line("plan", "--from", own.dir, "--rate", "400/s", "--average-rate", "100/s", "--helm")
    assert_equal 0, code, err
    values = YAML.safe_load(out)
    assert_equal({ "workers" => 2, "threads" => 3 }, values["server"])
    # Six at a time for 50 ms are 120 a second; 400 and 30 % are more than four times as many.
    assert_includes 4..6, values["replicas"], out
    limits = values.dig("resources", "limits")
    assert_match(/\A\d+m\z/, limits["cpu"])
    assert_operator limits["memory"][/\A(\d+)Mi\z/, 1].to_i, :>=, 64
    assert_equal [2, values["replicas"] * 2], values["autoscaling"].values_at("minReplicas", "maxReplicas")
    assert_operator values.dig("autoscaling", "saturation"), :<=, 1
  end

  TWO_ROUTES = <<~'RUBY'
    run lambda { |env|
      sleep(env["PATH_INFO"] == "/long" ? 0.06 : 0.01)
      [200, { "content-type" => "text/plain" }, ["ok"]]
    }
  RUBY

  it "divides the costs of a running server among its routes, also at twice the load" do
    own = start(app: TWO_ROUTES, workers: 1, threads: "3:3")
    [*["/long"] * 60, *["/short"] * 60].each_slice(6) { |slice| slice.map { |path| Thread.new { get(path, to: own) } }.each(&:join) }
    given = ["--live", "--from", own.dir, "--rate", "100/s", "--average-rate", "20/s"]
    out, err, code = own.command_line("plan", *given, "--instance-cost", "$40/month", "--json")
    assert_equal 0, code, err
    bill = JSON.parse(out).fetch("bill")
    assert_equal(["GET /long", "GET /short"], bill["routes"].map { |one| one["route"] })
    assert_in_delta bill["per_month"], bill["routes"].sum { |one| one["per_month"] }, 0.01
    assert_equal 40.0 * bill["instances"], bill["per_month"]
    assert_operator bill["instances_at_twice"], :>, bill["instances"]
    long, short = bill["routes"]
    assert_operator long["per_month"], :>, 2 * short["per_month"]
    assert_in_delta long["per_month"] / (20 * 0.5 * 730 * 3600) * 1000, long["per_thousand"], long["per_thousand"] * 0.01
    text, = own.command_line("plan", *given, "--instance-cost", "$40/month")
    assert_match(%r{^Bill .*\n  GET /long +\d+ % +\$\d.*\n  GET /short .*\n  all }, text)
    assert(text.lines.all? { |line| line.chomp.length <= 100 }, text)
    text, = own.command_line("plan", *given)
    assert_match(/Give the price with --instance-cost/, text)
    _, err, code = plan("--live", "--from", "-", input: "")
    assert_equal 2, code
    assert_match(/--live requires a running server/, err)
  end

  it "reports that no server is running" do
    write("config.ru", SLEEPER)
    [["--from", "."], ["--live"]].each do |args|
      _, err, code = plan(*args)
      assert_equal 2, code
      assert_match(/no Firebrick is running|nothing listens/, err)
    end
    _, err, code = plan("--from", "tcp://127.0.0.1:1", "--rate", "5/s")
    assert_equal 2, code
    assert_match(/nothing listens/, err)
  end
end
