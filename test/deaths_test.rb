# frozen_string_literal: true

# The reasons for which workers ended: `GET /deaths`, `firebrick deaths`, the log, and the kernel's choice when memory runs out.

require "support/case"

DEATHS_APP = <<~'RUBY'
  text = { "content-type" => "text/plain" }
  run lambda { |env|
    case env["PATH_INFO"]
    when "/pid" then [200, text, [Process.pid.to_s]]
    when "/exit" then exit!(7)
    when "/raise" then raise KeyError, "private"
    when "/segv" then Process.kill(:SEGV, Process.pid); sleep
    when "/long" then ENV.key?("TEST_FIBERS") ? (nil while true) : sleep # a fiber that waits does not hold its worker up
    when "/swallow"
      kept = []
      loop { kept << ("x" * (8 << 20)) }
    else [200, text, ["fine"]]
    end
  }
RUBY

class DeathsTest < Case
  parallel! slow: true

  def server(**options)
    start(app: DEATHS_APP, **options)
  end

  # Returns the newest record once there are +count+ of them.
  def death(own, count = 1)
    wait_until("a record") { own.control("/deaths").size >= count } and own.control("/deaths").first
  end

  it "records the exit code, and what the worker was serving" do
    firebrick_only
    own = server
    3.times { get("/", to: own) }
    pid = get("/pid", to: own).body.to_i
    assert_status 502, get("/exit?secret", to: own)
    record = death(own)
    assert_equal ["exit", 7, nil, pid, 0, 1], record.values_at("cause", "exit_code", "signal", "pid", "worker", "generation")
    assert_equal 4, record["requests"]
    assert_operator record["age_s"], :>, 0
    assert_operator record["peak_rss_bytes"], :>, 1 << 20
    assert_equal([["GET", "/exit", false]], record["in_flight"].map { |one| one.values_at("method", "path", "answered") })
    assert_logged(%r{worker 0 \(pid #{pid}\) died: exit code 7; it was .* old and had finished 4 requests.*serving GET /exit\?secret}, on: own)
    assert_equal 1, own.stats["deaths"]["exit"]
    assert_equal 0, own.stats["deaths"]["out_of_memory"]
  end

  it "tells a kill by hand and a crash" do
    firebrick_only
    own = server
    Process.kill("KILL", get("/pid", to: own).body.to_i)
    record = death(own)
    assert_equal ["signal", nil, 9], record.values_at("cause", "exit_code", "signal")
    assert_equal record["oom_kills_before"], record["oom_kills_after"]
    assert_status 502, get("/segv", to: own)
    # Ruby reports a SEGV and aborts; since 3.3 the signal itself ends it.
    record = death(own, 2)
    assert_equal "signal", record["cause"]
    assert_includes [6, 11], record["signal"]
    assert_logged(/\[BUG\] Segmentation fault/, on: own)
  end

  it "knows where a long request was in the app when its worker died" do
    firebrick_only
    own = server
    pid = get("/pid", to: own).body.to_i
    long = connect(own).write(request("GET", "/long"))
    # After a second the worker is asked for its backtrace.
    sleep 2.5
    Process.kill("KILL", pid)
    assert_status 502, long.read_response
    request = death(own)["in_flight"].first
    assert_equal "/long", request["path"]
    assert_operator request["age_ms"], :>=, 2000
    assert_match(/\Aconfig\.ru:8:in/, request["backtrace"].first)
    assert_logged(%r{serving GET /long \(for .* s, last seen at config\.ru:8:in}, on: own)
  end

  it "records timeouts and workers that are taken away, and shows all in a table" do
    firebrick_only
    own = server(workers: 2, threads: "1:1", settings: { timeouts: { worker: 1 } })
    assert_status 504, get("/long", to: own)
    record = death(own)
    assert_equal ["timeout", 9, true], [*record.values_at("cause", "signal"), record["in_flight"].first["answered"]]
    assert_match(/config\.ru:8/, record["in_flight"].first["backtrace"].first)
    wait_until("two workers") { own.stats["workers"].count { |one| one["state"] == "ready" } == 2 }
    own.signal("TTOU")
    assert_equal ["drain", 0, nil], death(own, 2).values_at("cause", "exit_code", "signal")
    out, err, code = own.command_line("deaths", own.dir)
    assert_equal ["", 0], [err, code]
    lines = out.lines.map(&:split)
    assert_match(%r{\AGET /long was in progress in 1 of 1 unexpected deaths with requests, last seen at config\.ru:8}, out)
    assert_equal(%w[drain timeout], [lines[3].last, lines[4].last])
    assert_match(%r{\A    GET /long, \d\.\d s, answered, last seen at config\.ru:8}, out.lines[5])
    assert_equal(own.control("/deaths"), JSON.parse(own.command_line("deaths", own.dir, "--json").first))
    assert_match(/deaths\s+of workers: timeout 1, drain 1/, own.command_line("stats", own.dir).first)
  end

  [{}, { fibers: 4 }].each do |how|
    it "shows what a killed worker did last, which it cannot tell itself any more #{how}" do
      firebrick_only
      own = server(**how)
      assert_status 500, get("/raise?secret", to: own)
      assert_status 502, get("/exit", to: own)
      record = death(own)
      events = record["events"].map { |one| one.values_at("event", "text", "status") }
      assert_equal [["begin", "GET /raise", nil], ["raised", "KeyError at config.ru:6", nil], ["fail", "", 500], ["begin", "GET /exit", nil]], events.last(4)
      refute_includes record["events"].to_json, "private"
      second = record["seconds"].last
      assert_operator second["rss_bytes"], :>, 1 << 20
      assert_equal(2, record["seconds"].sum { |one| one["begun"] })
      out, = own.command_line("deaths", own.dir)
      assert_match(/^    in the last \d+ s: 2 requests begun, 1 ended, 1 failed; /, out)
      assert_match(%r{ before: began GET /exit (?:after [\d.]+ ms in the queue )?\(thread \d\)\n\z}, out)
      assert_match(%r{ s before: \d begun}, own.command_line("deaths", own.dir, "--minute").first)
    end
  end

  it "names the request first that several workers have died of" do
    firebrick_only
    own = server(workers: 2, threads: "1:1")
    2.times do |count|
      assert_status 502, get("/exit", to: own)
      death(own, count + 1)
    end
    assert_match(%r{\AGET /exit was in progress in 2 of 2 unexpected deaths with requests \(newest: no\. 2\)\n}, own.command_line("deaths", own.dir).first)
  end

  it "repeats the request that killed a worker, in one that serves nobody" do
    firebrick_only
    own = server(workers: 1, threads: "1:1")
    assert_status 502, post("/exit?token=tik", "password=tuk&n=1", to: own, headers: { "Cookie" => "id=tak" })
    record = death(own)
    assert_equal [1, 1], record.values_at("number", "kept")
    kept = own.control("/deaths?kept=1").first
    assert_equal ["POST", "/exit?token=***", %w[query cookie body]], kept.values_at("method", "target", "masked")
    bytes = [kept["payload"]].pack("H*")
    assert_includes bytes, "password=***&n=1"
    %w[tik tuk tak].each { |secret| refute_includes bytes, secret }
    pid = get("/pid", to: own).body
    out, err, code = own.command_line("deaths", own.dir, "--replay", "1")
    assert_equal ["", 1], [err, code], out
    assert_includes out, "\nPOST /exit?token=***, with its body of 16 bytes\n  secrets are overwritten, so the app may take another way: query, cookie, body\n"
    assert_includes out, "  It ended the worker: exit status 7.\n  The last line of the app that ran: config.ru:5\n"
    assert_equal pid, get("/pid", to: own).body, "the server's own worker is untouched"
    assert_equal 1, own.control("/deaths").size
    assert_empty Dir[File.join(ENV.fetch("TMPDIR", "/tmp"), "firebrick-replay-*")]
  end

  {
    "/segv" => /It killed the worker: signal (6|11) \(SIG(ABRT|SEGV)\)\.\n  The last line of the app that ran: config\.ru:7/,
    "/long" => /It is stuck: after 1\.0 s it was here:\n      .*config\.ru:8/
  }.each do |path, wanted|
    it "tells what became of #{path} when it is repeated" do
      firebrick_only
      own = server(workers: 1, threads: "1:1", settings: { timeouts: { worker: 1 } })
      assert_includes [502, 504], get(path, to: own).status
      death(own)
      out, _, code = own.command_line("deaths", own.dir, "--replay", "1", "--limit", "1s")
      assert_equal 1, code
      assert_match wanted, out
    end
  end

  it "keeps only as many requests as are wished, and says why one cannot be repeated" do
    firebrick_only
    own = server(workers: 1, threads: "1:1", settings: { deaths: { keep_requests: 1 } })
    2.times do |count|
      get("/exit", to: own)
      death(own, count + 1)
    end
    assert_equal([1, 0], own.control("/deaths").map { |one| one["kept"] })
    { "1" => /no request of no\. 1 is kept: deaths\.keep_requests/, "9" => /there is no record 9: .*the newest is no\. 2/,
      "x" => /--replay x: expected the number of a record/ }.each do |number, wanted|
      _, err, code = own.command_line("deaths", own.dir, "--replay", number)
      assert_operator code, :>, 0
      assert_match wanted, err
    end
  end

  it "says when no worker has ended, and when no server runs" do
    firebrick_only
    own = server
    assert_equal ["no worker has ended\n", "", 0], own.command_line("deaths", own.dir)
    own.signal("TERM")
    own.wait_exit
    out, err, code = own.command_line("deaths", own.dir)
    assert_equal ["", 1], [out, code]
    assert_includes err, "no Firebrick is running for #{own.dir}"
  end

  it "makes the kernel take workers and template before the front" do
    firebrick_only
    own = server
    ours = score("self")
    tree = Processes.tree(own.pid).map(&:pid)
    assert_equal own.pid, tree.first
    assert_operator tree.size, :>=, 3
    wanted = [ours + 500, 1000].min
    assert_equal([ours, *Array.new(tree.size - 1, wanted)], tree.map { |pid| score(pid) })
  end

  it "tells the kernel's kill for lack of memory from another" do
    firebrick_only
    group = memory_group or skip "no control group for memory can be made here"
    own = server
    own.processes.each { |one| File.write("#{group}/cgroup.procs", one.pid.to_s) }
    assert_status 502, get("/swallow", to: own)
    record = death(own)
    assert_equal ["out_of_memory", 9], record.values_at("cause", "signal")
    assert_operator record["oom_kills_after"], :>, record["oom_kills_before"]
    assert_logged(/was killed by the kernel because memory ran out/, on: own)
    Process.kill("KILL", get("/pid", to: own).body.to_i)
    assert_equal "signal", death(own, 2)["cause"]
  ensure
    if group
      @own_servers.each(&:finish)
      wait_until("the group to be empty") { File.read("#{group}/cgroup.procs").empty? }
      Dir.rmdir(group)
    end
  end

  private

  def score(pid)
    Integer(File.read("/proc/#{pid}/oom_score_adj"))
  end

  # A memory group with a limit of 150 MB.
  def memory_group
    root, file = [["/sys/fs/cgroup/memory", "memory.limit_in_bytes"], ["/sys/fs/cgroup", "memory.max"]].find { |dir, _| File.directory?(dir) && File.writable?(dir) }
    return unless root

    group = File.join(root, "firebrick-test-#{Process.pid}")
    Dir.mkdir(group)
    File.write(File.join(group, file), (150 << 20).to_s)
    group
  rescue SystemCallError
    Dir.rmdir(group) if group && File.directory?(group)
    nil
  end
end
