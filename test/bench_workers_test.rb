# frozen_string_literal: true

# `firebrick bench --workers`: several processes act as one load generator with one report.

require "pty"
require "socket"
require "support/bench_case"
require "support/processes"

# Every third response to a URL takes 60 ms, the others 20: neither p50 nor p75 lies between the two. /count returns the number of requests served.
BENCH_WORKERS_APP = <<~'RUBY'
  served = Hash.new(0)
  lock = Mutex.new
  run lambda { |env|
    number = lock.synchronize { env["PATH_INFO"] == "/count" ? served.values.sum : served[env["QUERY_STRING"]] += 1 }
    sleep((number % 3).zero? ? 0.06 : 0.02) if env["PATH_INFO"] == "/sleep"
    [200, { "content-type" => "text/plain" }, ["#{number}\n"]]
  }
RUBY

class BenchWorkersCase < BenchCase
  # Runs `firebrick bench` with +workers+ processes. Yields its pid and theirs; returns its output, errors and status.
  def running(workers, *args, within: 30)
    output, errors = Array.new(2) { IO.pipe }
    pid = Process.spawn(Server.ruby_files, Server.binary, "bench", "--workers", workers.to_s, *args.map(&:to_s), in: File::NULL, out: output[1], err: errors[1])
    [output, errors].each { |pipe| pipe[1].close }
    texts = [output, errors].map { |pipe| Thread.new { pipe[0].read } }
    children = wait_until("#{workers} processes") { Processes.tree(pid).drop(1).then { |all| all if all.size == workers } }
    yield pid, children.map(&:pid)
    status = wait_until("the end of bench", within: within) { Process.wait2(pid, Process::WNOHANG)&.last }
    pid = nil
    assert_empty children.select { |child| Processes.alive?(child) }, "processes that are left"
    [*texts.map(&:value), status.exitstatus]
  ensure
    Process.kill("KILL", pid) && Process.wait(pid) if pid
  end

  # Waits until the load has begun.
  def loaded
    before = get("/count").body.to_i
    wait_until("requests") { get("/count").body.to_i > before + 5 }
  end
end

# Quiet, because it compares times of runs. These go on at the same time, so that what disturbs one disturbs the others.
class BenchWorkersTimesTest < BenchWorkersCase
  quiet!
  shared_server app: BENCH_WORKERS_APP, workers: 1, threads: "16:16"

  def setup
    firebrick_only
  end

  FIGURES = %w[mean p50 p75 p90 p95 p99].freeze

  # The differences between the figures of two runs, as shares.
  def apart(run, other)
    FIGURES.to_h { |name| [name, ((run.dig("summary", "latency_ms", name) / other.dig("summary", "latency_ms", name)) - 1).abs] }
  end

  # Accepts differences no larger than between two runs of one process, or 1 %.
  def close?(four, one, again)
    noise = apart(again, one)
    [one, again].any? { |run| apart(four, run).all? { |name, share| share <= [0.01, noise[name]].max } }
  end

  it "has the percentiles of one process" do
    found = Array.new(5) do
      one, four, again = [[], ["--workers", 4], []].each_with_index.map do |flags, number|
        Thread.new { result(server.url("/sleep?#{number}"), "--rate", "60/s", "-d", "5s", *flags) }
      end.map(&:value)
      assert_equal([300, 300], [one, four].map { |run| run.dig("summary", "requests") })
      assert_equal([nil, 4], [one, four].map { |run| run.dig("plan", "workers") })
      begins = four.dig("outcome", "course").first(5).map { |second| second["sent"] }
      return if close?(four, one, again) && begins.all? { |sent| sent.between?(54, 66) }

      [apart(four, one), apart(again, one), begins]
    end
    flunk "more than 1 % apart, and more than two runs of one process are, or begun at different moments, five times: #{found}"
  end
end

class BenchWorkersTest < BenchWorkersCase
  in_turn!
  shared_server app: BENCH_WORKERS_APP, workers: 1, threads: "8:8"

  def setup
    firebrick_only
  end

  it "sends exactly the given number of requests with the given number of users" do
    before = get("/count").body.to_i
    found = result(server.url, "-c", 10, "-n", 1003, "--workers", 3)
    assert_equal [1003, 1003, 10, 0], [*found["outcome"].values_at("sent", "ok", "connections"), found.dig("summary", "errors")]
    assert_equal before + 1003, get("/count").body.to_i, "none before the start"
    assert_equal 35, result(server.url, "-c", 5, "-r", 7, "--workers", 2).dig("summary", "requests")
    random = result(server.url, "--rate", "100/s", "--arrivals", "random:5", "-d", "1s", "--workers", 3)
    assert_equal result(server.url, "--rate", "100/s", "--arrivals", "random:5", "-d", "1s").dig("summary", "requests"), random.dig("summary", "requests")
  end

  it "reports in every format, once" do
    in_folder do |dir|
      out, err, code = bench(server.url, "-c", 8, "-n", 200, "--workers", 4, "--json", "a.json", "--html", "a.html", "--csv", "a.csv", dir: dir)
      assert_equal [0, ""], [code, err]
      assert_match(/^8 users, .*; from 4 processes/, out)
      assert_match(/successful\s+200 /, out)
      assert_equal 200, JSON.parse(File.read("#{dir}/a.json")).dig("summary", "requests")
      assert_includes File.read("#{dir}/a.html"), "from 4 processes"
      assert_equal(200, File.readlines("#{dir}/a.csv").drop(1).sum { |line| line.split(",")[2].to_i })
      assert_match(/Complete requests:      200$/, bench(server.url, "-c", 8, "-n", 200, "--workers", 4, "--format", "ab").first)
      _, err, code = bench(server.url, "-c", 8, "-n", 200, "--workers", 4, "--fail-if", "p99>1us")
      assert_equal 1, code
      assert_match(/\Afirebrick bench: failed: p99>1us: it is [^\n]+\n\z/, err)
      out, = bench("--merge", "a.json", "a.json", dir: dir)
      assert_match(/^16 users, .*; from 8 processes/, out)
    end
  end

  it "names a process that is killed, and marks the result as incomplete" do
    killed = nil
    in_folder do |dir|
      out, err, code = running(3, server.url, "--rate", "60/s", "-d", "3s", "--json", "#{dir}/a.json") do |_, children|
        loaded
        Process.kill("KILL", killed = children[1])
      end
      assert_equal 1, code
      assert_match(/\Afirebrick bench: incomplete: worker \d of 3 \(process #{killed}\) was killed by signal 9\n\z/, err)
      assert_match(/Note: the results are incomplete, because worker \d of 3/, out)
      found = JSON.parse(File.read("#{dir}/a.json"))
      assert_equal 120, found.dig("summary", "requests"), "those of the two others"
      assert_match(/worker \d of 3 \(process #{killed}\)/, found["incomplete"].first)
      out, = Open3.capture2(Server.ruby_files, Server.binary, "plan", "--from", "#{dir}/a.json")
      assert_match(/The bench is incomplete, because worker \d of 3 \(process #{killed}\) was killed by signal 9: its rate is too low/, out.split.join(" "))
      _, err, code = bench("--merge", "#{dir}/a.json")
      assert_equal 1, code
      assert_match(/incomplete: worker \d of 3/, err)
    end
  end

  it "reports what there is after Ctrl-C" do
    out, err, code = running(3, server.url, "-c", 6, "-d", "60s", "--think", "10ms", "--format", "json") do |pid, _|
      loaded
      Process.kill("INT", pid)
    end
    assert_equal [0, ""], [code, err]
    found = JSON.parse(out)
    assert_operator found.dig("summary", "requests"), :>, 5
    assert_operator found.dig("summary", "seconds"), :<, 30
    refute_includes found, "incomplete"
  end

  it "ends on a terminal's Ctrl-C, which reaches the coordinator alone" do
    reader, writer, pid = PTY.spawn(Server.ruby_files.merge("TERM" => "xterm"), Server.binary, "bench", server.url, "-d", "60s", "-c", "4", "--think", "5ms", "--workers", "2")
    screen = +""
    wait_until("the live screen", within: 20) { screen << reader.read_nonblock(65_536, exception: false).then { |read| read.is_a?(String) ? read : "" } and screen.match?(/[1-9]\d* done/) }
    writer.write("\u0003")
    begin
      loop { screen << reader.readpartial(65_536) }
    rescue Errno::EIO, EOFError
      nil
    end
    assert_equal 0, Process.wait2(pid).last.exitstatus
    assert_match(/successful/, screen)
    refute_match(/incomplete/, screen)
  end

  it "leaves no process behind when it is killed" do
    children = nil
    assert_raises(Minitest::Assertion) do
      running(2, server.url, "-d", "60s", "--think", "5ms", within: 5) do |pid, pids|
        loaded
        children = pids
        Process.kill("KILL", pid)
        wait_until("the end of the processes") { pids.none? { |child| Processes.alive?(child) } }
        flunk "so far"
      end
    end
    assert_empty(children.select { |child| Processes.alive?(child) })
  end

  it "ends a process that is stopped" do
    stopped = nil
    _, err, code = running(2, server.url, "--rate", "40/s", "-d", "2s", within: 30) do |_, children|
      loaded
      Process.kill("STOP", stopped = children[0])
    end
    assert_equal 1, code
    assert_match(/incomplete: worker \d of 2 \(process #{stopped}\) did not report for 10 s/, err)
  end
end

class BenchWorkersUsageTest < BenchCase
  parallel!

  def setup
    firebrick_only
  end

  it "refuses numbers that leave a process without a load" do
    { ["h", "--workers", 0] => /--workers: .*at least 1/, ["h", "--workers", 300] => /300 processes: expected 1 to 256/,
      ["h", "-c", 3, "--workers", 4] => /--workers 4: there are 3 users .*expected at most 3/,
      ["h", "--rate", "2/s", "--workers", 3] => /--workers 3: --rate is 2 per second.*at most 2/,
      ["h", "--replay", "-", "--workers", 2] => /--replay - cannot be used with --workers.*expected a file name/,
      ["--merge", "a.json", "--workers", 2] => /--merge sends nothing.*--workers/ }.each do |args, wanted|
      out, err, code = bench(*args)
      assert_equal [2, ""], [code, out], args.inspect
      assert_match wanted, err
    end
  end

  it "tells which process cannot begin" do
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    _, err, code = bench("http://127.0.0.1:#{port}/", "-n", 50, "--workers", 3)
    assert_equal 1, code
    assert_match(/\Afirebrick bench: worker \d of 3 \(process \d+\): .*refused[^\n]*\n\z/i, err)
    _, err, code = bench("http://127.0.0.1:#{port}/", "--rate", "50/s", "-d", "1s", "--workers", 3)
    assert_equal 1, code
    assert_match(/worker 1 of 3.*refused/i, err)
  end
end
