# frozen_string_literal: true

# The judge is judged: parsing, accounting and clean-up. Run: ruby bench/test/bench_test.rb
require "minitest/autorun"
require "rack"
require "tmpdir"
require_relative "../lib/options"
require_relative "../lib/comparison"
require_relative "../lib/report"

class CommandTest < Minitest::Test
  def test_placeholders_are_filled_in
    words = Bench::Server.command("s -p {port} -t {threads}:{threads} '{dir}'", port: 1, dir: "/a b", shape: [2, 5])
    assert_equal ["s", "-p", "1", "-t", "5:5", "/a b"], words
  end

  def test_puma_runs_single_with_one_worker_and_preloads_with_more
    one = Bench::Server.command("p -w {cluster} {preload}", port: 1, dir: ".", shape: [1, 5])
    ten = Bench::Server.command("p -w {cluster} {preload}", port: 1, dir: ".", shape: [10, 5])
    assert_equal [%w[p -w 0], %w[p -w 10 --preload]], [one, ten]
  end

  def test_an_unknown_placeholder_is_named_with_the_known_ones
    error = assert_raises(Bench::Failure) { Bench::Server.command("s {prot}", port: 1, dir: ".", shape: [1, 1]) }
    assert_match(/\{prot\}.*\{port\}/, error.message)
  end
end

class OptionsTest < Minitest::Test
  def test_quick_is_one_short_round_unless_told_otherwise
    quick = Bench::Options.new(%w[quick])
    assert_equal [1, 2], [quick.rounds, quick.seconds]
    assert_equal 4, Bench::Options.new(%w[--rounds 4 quick]).rounds
  end

  def test_scenarios_are_chosen_by_pattern
    assert_equal %w[hello-64 hello-200], Bench::Options.new(%w[hello-*]).scenarios.map(&:name)
  end

  def test_bad_words_are_refused
    [%w[nosuch], %w[--server x], %w[--rounds 0], %w[--shape 2], %w[--without nginx], %w[--without puma --without firebrick]].each do |words|
      assert_raises(Bench::Failure, words.join(" ")) { Bench::Options.new(words) }
    end
  end
end

class ParsingTest < Minitest::Test
  AB = "Complete requests:      1000\nFailed requests:        3\nTime taken for tests:   0.5 seconds\nNon-2xx responses:      2\n"
  CSV = "Percentage served,Time in ms\n50,1.250\n99,7.500\n100,9.000\n"

  def test_ab_counts_failed_and_refused_requests
    sample = Bench::Loads::Ab.parse(AB, CSV, 1000)
    assert_equal [1000, 0.5, 5, 1.25, 7.5, 9.0], sample.to_a
  end

  def test_ab_that_gave_up_counts_what_was_not_sent
    sample = Bench::Loads::Ab.parse("apr_socket_recv: Connection reset by peer (104)\nTotal of 40 requests completed\n", "", 1000)
    assert_equal [40, 960, nil], [sample.requests, sample.errors, sample.seconds]
  end

  def test_siege_without_a_result_is_a_failure
    text = %(noise\n{\t"successful_transactions":\t590,\n\t"elapsed_time": 2.5,\n\t"longest_transaction": 0.2\n}\n)
    sample = Bench::Loads::Siege.parse(text, 600)
    assert_equal [590, 10, 200.0], [sample.requests, sample.errors, sample.longest]
    assert_raises(Bench::Failure) { Bench::Loads::Siege.parse("siege aborted", 600) }
  end
end

class ReportTest < Minitest::Test
  def result(cpu, pss)
    Bench::Result.new(sample: Bench::Loads::Sample.new(requests: 5_000, seconds: 2.0, errors: 0, p50: 2.0, p99: 3.0, longest: 4.0),
                      cpu_ms: cpu, pss: pss, killed: 0)
  end

  def test_a_ratio_is_the_median_of_the_rounds_own_ratios
    report = Bench::Report.new("hello", [1, 5], "a" => [result(1.0, 10), result(4.0, 10), result(1.0, 10)],
                                                "b" => [result(0.5, 5), result(2.0, 5), result(2.0, 5)])
    assert_equal "| hello | 1x5 | b | 2,500 | 2.0000 | 0.50 | 2.00 | 3.00 | 1.5 | 4.0 | 0 | 5.0 | 0.50 |", report.rows.last
    refute report.failed?
  end

  def test_a_failed_round_shows_as_an_error_and_a_note
    report = Bench::Report.new("hello", [1, 5], "a" => [result(1.0, 10), Bench::Failure.new("no answer")])
    assert_includes report.rows.first, "| 1 | 10.0 |"
    assert_equal ["hello, a: no answer"], report.notes
    assert report.failed?
  end
end

class ProcessTreeTest < Minitest::Test
  BURN = "t = Process.clock_gettime(2) + 0.2; nil while Process.clock_gettime(2) < t"

  # Runs Ruby code as leader of a session until the block ends; the code prints a line when it is ready.
  def tree(code)
    reader, writer = IO.pipe
    pid = fork do
      Process.setsid
      $stdout.reopen(writer)
      exec("ruby", "-e", "$stdout.sync = true; #{code}; sleep")
    end
    reader.gets
    found = Bench::ProcessTree.new(pid)
    yield found
  ensure
    found&.kill
    Process.wait(pid)
    [reader, writer].each(&:close)
  end

  def test_cpu_of_threads_and_children_that_ended_is_counted
    tree("Thread.new { #{BURN} }.join; Process.wait(fork { #{BURN} }); puts") do |found|
      assert_operator found.cpu_seconds, :>=, 0.35
      assert_equal 1, found.members.size
    end
  end

  def test_orphans_stay_in_the_tree_and_are_killed_with_it
    tree("Process.wait(fork { fork { sleep } }); puts") do |found|
      assert_equal 2, found.living.size
      assert_operator found.pss_mib, :>, 1
      assert_equal 2, found.kill
    end
  end
end

class ServerTest < Minitest::Test
  def test_a_server_that_ends_at_once_shows_its_log
    Dir.mktmpdir do |dir|
      server = Bench::Server.new("ruby -e 'abort %q(no such app)'", log: File.join(dir, "log"))
      error = assert_raises(Bench::Failure) { server.start(dir, [1, 1]) { false } }
      assert_match(/no such app/, error.message)
      assert_equal 0, server.stop
    end
  end

  def test_stop_kills_a_child_that_ignores_the_signal
    Dir.mktmpdir do |dir|
      code = "fork { trap(:TERM, %q(IGNORE)); File.write(%q(up), %q()); sleep }; sleep"
      server = Bench::Server.new("ruby -e '#{code}'", log: File.join(dir, "log"))
      server.start(dir, [1, 1]) { File.exist?(File.join(dir, "up")) }
      assert_equal 1, server.stop(patience: 0.2)
      assert_empty server.tree.living
    end
  end
end

class AppsTest < Minitest::Test
  def test_each_app_answers_the_body_that_its_scenarios_expect
    Bench::SCENARIOS.uniq(&:app).reject(&:redis).each do |scenario|
      app, = Rack::Builder.parse_file(File.expand_path("../apps/#{scenario.app}/config.ru", __dir__))
      response = Rack::MockRequest.new(app).post("/", input: "x" * scenario.upload) if scenario.upload.positive?
      response ||= Rack::MockRequest.new(app).get("/")
      assert_equal [200, scenario.bytes, scenario.sha256],
                   [response.status, response.body.bytesize, Digest::SHA256.hexdigest(response.body)], scenario.app
    end
  end
end
