# frozen_string_literal: true

# bench/deploys on a small scale, and its detection of faults. Run: ruby bench/test/deploys_test.rb
# (with FIREBRICK=PATH for another binary than target/'s).
require "minitest/autorun"
require "open3"
require_relative "built"
require_relative "../lib/deploys/clients"
require_relative "../lib/deploys/soak"
require_relative "../lib/deploys/upgrades"

class DeploysTest < Minitest::Test
  # The tests wait most of the time.
  parallelize_me!

  include Built
  include Bench::Deploys

  def run_deploys(*args, env: {})
    Open3.capture2e({ "FIREBRICK" => BINARY }.merge(env), File.join(ROOT, "bench/deploys"), *args)
  end

  def test_reloads_cost_no_request
    need_firebrick
    out, = run_deploys("reloads", "--rounds", "1", "--rate", "40", "--calm", "2")
    assert_match(/^\| Firebrick, reload \| \d+ \| 0 \| .* \| 0 \| 0 \| 0 \|/, out)
  end

  def test_upgrades_cost_no_connection
    need_firebrick
    out, status = run_deploys("upgrades", "--rounds", "1", "--rate", "40")
    assert status.success?, out
    assert_match(%r{^Firebrick, upgrade: 1 upgrades, .* \d+ new connections at 40/s, 0 failed$}, out)
    assert_operator out[/queue at the handover: (\d+) to/, 1].to_i, :>=, Bench::Deploys::Upgrades::BACKLOG, out
    assert_match(/KeepAlive: [1-9]\d* completed, 0 failed/, out)
  end

  def test_memory_is_told
    need_firebrick
    out, = run_deploys("memory", "--rounds", "2")
    assert_match(/^fresh: +all \d+\.\d MiB: front \d+\.\d, template \d+\.\d, 4 workers \d+\.\d$/, out)
    assert_match(/^2 reloads: /, out)
    assert_match(/^largest ratio to the fresh start: \d\.\d{3}, 1.05 allowed$/, out)
  end

  def test_a_server_that_is_not_installed_is_named
    kind = Class.new(Firebrick) do
      def command = ["/nowhere/server"]
    end
    error = assert_raises(Bench::Failure) { kind.new.start }
    assert_match(%r{it is not installed \(.*/nowhere/server\)}, error.message)
  end

  def test_a_burst_tells_what_failed
    answering("HTTP/1.1 502 Bad Gateway\r\n\r\n", "") do |port|
      burst = Upgrades::Burst.new(port, 2)
      burst.finish
      assert_equal({ "the response was \"HTTP/1.1 502 Bad Gateway\\r\\n\\r\\n\"" => 1, "the response was \"\"" => 1 }, burst.wrong)
    end
  end

  def test_replacements_cost_no_request
    need_firebrick
    out, status = run_deploys("replacements", "--rounds", "1", "--rate", "40")
    assert status.success?, out
    assert_match(/^Firebrick: 1 replacements, \d{2,} requests, 0 failed$/, out)
  end

  def test_a_soak_runs_with_every_kind_of_client
    need_firebrick
    out, = run_deploys("soak", "--minutes", "0.1", "--every", "2")
    assert_match(/KeepAlive: \d+ completed, 0 failed/, out)
    assert_match(/WebSockets: [1-9]\d* completed, 0 failed/, out)
    assert_match(/fewer than 6 reloads/, out)
  end

  def test_growth_is_told
    soak = Soak.new(minutes: 9, every: 60)
    sample = ->(front, fds) { Soak::Sample.new(front, 100.0, 0.0, fds, 4) }
    assert_empty soak.send(:growth, Array.new(9) { |i| sample.call(i < 3 ? 1 : 20, 50) })
    assert_equal ["front_mib grew from 15.0 to 18.0"], soak.send(:growth, Array.new(9) { |i| sample.call(11.0 + i, 50) })
    assert_equal ["descriptors grew from 60.0 to 90.0"], soak.send(:growth, Array.new(9) { |i| sample.call(1, 20 + (10 * i)) })
  end

  # A server that closes each connection after sending these texts.
  def answering(*texts)
    server = TCPServer.new("127.0.0.1", 0)
    thread = Thread.new do
      loop do
        socket = server.accept
        socket.readpartial(1000)
        socket.write(texts.shift || "")
        socket.close
      end
    end
    yield server.addr[1]
  ensure
    thread&.kill
    server&.close
  end

  def faults_of(kind, *texts)
    answering(*texts) do |port|
      client = kind.new(port).start
      sleep 0.5
      client.stop
      client.wrong.keys.map { |text| text[0, 50] }
    end
  end

  def test_clients_notice_failures
    head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert_match(/\AEvents: a stream of events was "\[200, 1, /, faults_of(Events, "#{head}5\r\ndata: \r\n").first)
    assert_match(/\AClosing: a response was "\[502, /, faults_of(Closing, "HTTP/1.1 502 Bad Gateway\r\n\r\n").first)
    assert_match(/\AWebSockets: what came instead of an echo was ""/, faults_of(WebSockets, "HTTP/1.1 101 x\r\n\r\n").first)
    assert_match(/\AKeepAlive: the status of a kept connection was ""/, faults_of(KeepAlive).first)
  end

  def test_wrong_usage
    [[], ["drive"], %w[soak extra], ["reloads", "--rounds", "0"], ["soak", "--minutes", "x"]].each do |args|
      out, status = run_deploys(*args)
      assert_equal 2, status.exitstatus, out
      assert_match(%r{usage: bench/deploys}, out)
    end
    out, status = run_deploys("soak", env: { "FIREBRICK" => "/nowhere" })
    assert_equal [1, "/nowhere is not there: run `make build`, or set FIREBRICK\n"], [status.exitstatus, out]
  end
end
