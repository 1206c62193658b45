# frozen_string_literal: true

# Tests of interleaved rounds: ratios, quartiles, disturbed rounds, the record and the check. Run: ruby bench/test/run_test.rb
# With a Firebrick (FIREBRICK, or built in target/) and Puma it also records and checks a scenario.
require "minitest/autorun"
require "open3"
require "rbconfig"
require "tmpdir"
require_relative "built"
require_relative "../lib/options"
require_relative "../lib/record"
require_relative "../lib/record_check"
require_relative "../lib/report"

module RunTest
  # The part of an Interleaved that a Report reads.
  FakeRun = Struct.new(:rounds, :failures, :memory, :killed, :shape, :names)

  def self.slice(cpu, p99: 3.0)
    sample = Bench::Loads::Sample.new(requests: 5_000, seconds: 2.0, errors: 0, p50: 2.0, p99: p99, longest: 4.0)
    Bench::Rounds::Slice.new(sample: sample, cpu_us: cpu)
  end

  # A moment at which the programs have used `busy` CPU seconds, `own` of them the bench's.
  def self.reading(at, busy: 0.0, own: 0.0, steal: 0.0) = Bench::Disturbance::Reading.new(at: at, busy: busy, steal: steal, own: own)

  # Rounds of [cpu of a, cpu of b, foreign cores].
  def self.rounds(wanted, list, metric = :cpu)
    queue = list.dup
    Bench::Rounds.new(wanted, metric).measure do |_number, disturbance|
      first, second, foreign = queue.shift
      disturbance.add(reading(0.0), reading(1.0, busy: foreign + 1, own: 1.0))
      { "firebrick" => slice(first), "puma" => slice(second) }
    end
  end

  def self.report(rounds, scenario = Bench::SCENARIOS.first)
    Bench::Report.new(scenario, FakeRun.new(rounds, {}, { "firebrick" => [9.0, 12.0], "puma" => [20.0, 19.0] }, { "puma" => 0 }, [1, 5], %w[firebrick puma]))
  end

  CONDITIONS = { date: "2026-01-01", machine: "one", load: "load average 0", versions: { "puma" => "5.6.5" }, rounds: 3, seconds: 1, pinned: true }.freeze
  QUIET = [[1.0, 4.0, 0.0], [2.0, 4.0, 0.0], [3.0, 4.0, 0.0]].freeze

  class RatioTest < Minitest::Test
    def test_median_and_quartiles_are_between_the_values
      assert_equal [2.5, 1.75, 3.25, 4], Bench::Ratio.of([4.0, 1.0, 3.0, 2.0]).to_a
      assert_equal [2.0, 2.0, 2.0, 1], Bench::Ratio.of([2.0]).to_a
      assert_nil Bench::Ratio.of([])
    end

    def test_a_ratio_is_the_median_of_the_rounds_own_ratios
      rounds = RunTest.rounds(3, [[1.0, 2.0, 0.0], [4.0, 40.0, 0.0], [3.0, 4.0, 0.0]])
      assert_in_delta 0.5, rounds.ratio("firebrick", "puma").median
      assert_in_delta 3.0, rounds.median("firebrick", &:cpu_us)
    end
  end

  class DisturbanceTest < Minitest::Test
    def disturbance(**after) = Bench::Disturbance.new.tap { |one| one.add(RunTest.reading(0.0), RunTest.reading(2.0, **after)) }

    def test_what_the_bench_uses_itself_is_not_foreign
      own = disturbance(busy: 4.0, own: 4.1)
      assert_equal [0.0, false], [own.foreign, own.disturbed?]
      assert_predicate disturbance(busy: 4.0, own: 3.5), :disturbed?
      assert_predicate disturbance(busy: 2.0, own: 2.0, steal: 0.3), :disturbed?
      refute_predicate disturbance(busy: 2.2, own: 2.0, steal: 0.1), :disturbed?
    end

    # Another program, as the machine sees it: not a child, whose time would count as the bench's own once it has ended.
    def test_a_real_program_is_noticed
      pid = Process.spawn("setsid", RbConfig.ruby, "-e", "loop {}")
      before = Bench::Disturbance.read([])
      sleep 1
      found = Bench::Disturbance.new
      found.add(before, Bench::Disturbance.read([]))
      assert_predicate found, :disturbed?
    ensure
      Process.kill(:KILL, pid) && Process.wait(pid)
    end

    def test_disturbed_rounds_are_left_out_and_repeated
      rounds = RunTest.rounds(3, [[1.0, 4.0, 0.0], [90.0, 4.0, 0.5], [1.0, 4.0, 0.0], [1.0, 4.0, 0.0], [90.0, 4.0, 0.0]])
      assert_equal [4, 3, 1, 0], [rounds.measured.size, rounds.kept.size, rounds.disturbed, rounds.disturbed_kept]
      assert_in_delta 0.25, rounds.ratio("firebrick", "puma").high
    end

    def test_on_a_busy_machine_the_least_disturbed_rounds_count
      rounds = RunTest.rounds(3, [0.9, 0.5, 0.3, 0.0, 0.8, 0.4].map { |foreign| [foreign, 1.0, foreign] })
      assert_equal [6, 3, 5, 2], [rounds.measured.size, rounds.kept.size, rounds.disturbed, rounds.disturbed_kept]
      assert_in_delta 0.4, rounds.ratio("firebrick", "puma").high + 0.05
      assert_match(/5 of 6 rounds were disturbed, by up to 0.90 cores.*rough/, RunTest.report(rounds).notes.join)
    end
  end

  class ReportTest < Minitest::Test
    def test_rows_have_value_share_quartiles_and_goal
      rows = RunTest.report(RunTest.rounds(3, QUIET)).rows.map { |cells| cells.join("|") }
      assert_equal ["hello-64|1x5|firebrick|CPU µs/request|2.00|–|–|–|2,500|2.00|3.00|4.00|0|9.0|12.0",
                    "hello-64|1x5|puma|CPU µs/request|4.00|0.500|0.375 to 0.625|0.18|2,500|2.00|3.00|4.00|0|20.0|20.0"], rows
    end

    def test_every_row_is_as_wide_as_the_head
      run = FakeRun.new(Bench::Rounds.new(1), { "puma" => Bench::Failure.new("no answer") }, {}, {}, [1, 5], %w[firebrick puma])
      report = Bench::Report.new(Bench::SCENARIOS.first, run)
      assert_equal [Bench::Report::HEAD.size], report.rows.map(&:size).uniq
      assert_equal [true, ["hello-64, puma: no answer"]], [report.failed?, report.notes]
    end

    def test_fairness_is_a_ratio_to_the_own_median
      fair = Bench::SCENARIOS.find { |one| one.name == "fair-200" }
      report = RunTest.report(RunTest.rounds(3, QUIET, :fairness), fair)
      assert_equal [Bench::OWN], report.ratios.keys
      assert_in_delta 1.5, report.ratios[Bench::OWN].median
    end
  end

  class RecordTest < Minitest::Test
    def setup
      @folder = Dir.mktmpdir("firebrick-record")
      @path = File.join(@folder, "record.json")
    end

    def teardown = FileUtils.rm_rf(@folder)

    def write
      record = Bench::Record.new(@folder, blank: true)
      record.add(RunTest.report(RunTest.rounds(3, QUIET)), CONDITIONS)
      record.write(Bench::SCENARIOS.map(&:name))
    end

    def failure(text)
      File.write(@path, text)
      assert_raises(Bench::Failure) { Bench::Record.new(@folder).ratios("hello-64") }.message
    end

    def test_ratios_are_read_as_they_were_written
      write
      assert_equal({ "puma" => Bench::Ratio.new(median: 0.5, low: 0.375, high: 0.625, rounds: 3) }, Bench::Record.new(@folder).ratios("hello-64"))
    end

    def test_the_table_replaces_its_own_part_of_the_file
      File.write(File.join(@folder, "RESULTS.md"), "# Figures\n\nOthers.\n")
      2.times { write }
      text = File.read(File.join(@folder, "RESULTS.md"))
      assert_match(/\A# Figures\n\nOthers\.\n/, text)
      assert_equal 1, text.scan("| 0.375 to 0.625 |").size
      assert_match(/one; at the start load average 0; others used 0.0 cores.*puma 5\.6\.5.*3 interleaved rounds of 1 s/, text)
    end

    def test_other_scenarios_are_kept
      write
      record = Bench::Record.new(@folder)
      record.add(RunTest.report(RunTest.rounds(3, QUIET), Bench::SCENARIOS[1]), CONDITIONS.merge(machine: "two"))
      record.write(Bench::SCENARIOS.map(&:name))
      read = Bench::Record.new(@folder)
      assert_equal(%w[one two], read.names.map { |name| read.machine(name) })
    end

    def test_a_missing_or_damaged_record_is_named_with_its_key
      assert_match(%r{record\.json does not exist: bench/run --record}, assert_raises(Bench::Failure) { Bench::Record.new(@folder) }.message)
      { "{" => /record\.json is no JSON/, "[]" => /record\.json: scenarios: expected an object/,
        '{"scenarios": {"hello-64": 1}}' => /record\.json: scenarios\.hello-64: expected an object, found 1/,
        '{"scenarios": {"hello-64": {}}}' => /scenarios\.hello-64\.ratios: expected an object, found nil/,
        '{"scenarios": {"hello-64": {"ratios": {"puma": {"median": "x"}}}}}' => /scenarios\.hello-64\.ratios\.puma\.median: expected a number of at least 0, found "x"/,
        '{"scenarios": {"page-64": {}}}' => %r{has no scenario hello-64, only page-64; bench/run --record hello-64 adds it} }.each do |text, message|
        assert_match message, failure(text)
      end
    end
  end

  class CheckTest < Minitest::Test
    FakeRecord = Struct.new(:all) do
      def ratios(name) = all.fetch(name)
    end

    def ratio(median, low: median, high: median) = Bench::Ratio.new(median: median, low: low, high: high, rounds: 5)

    # Runs the check with these measurements, one after the other: [peers => Ratio]. Returns the verdict, the measured peers and rounds, and the
    # lines.
    def check(recorded, measured, name: "hello-64", there: %w[firebrick puma iodine])
      asked = []
      lines = []
      measure = ->(_scenario, peers, rounds) { asked << [peers, rounds] && measured.shift }
      check = Bench::RecordCheck.new(FakeRecord.new({ name => recorded }), rounds: 5, there: ->(_scenario) { there }, measure: measure, out: lines.method(:push))
      [check.call([name]), asked, lines.join("\n")]
    end

    def test_ten_per_cent_pass
      fine, asked, = check({ "puma" => ratio(0.5) }, [{ "puma" => ratio(0.549) }])
      assert_equal [true, [[%w[puma], 5]]], [fine, asked]
    end

    def test_a_worse_ratio_is_measured_again_and_only_that_one
      fine, asked, = check({ "puma" => ratio(0.5), "iodine" => ratio(0.8) }, [{ "puma" => ratio(0.5), "iodine" => ratio(0.9) }, { "iodine" => ratio(0.81) }])
      assert_equal [true, [[%w[puma iodine], 5], [%w[iodine], 11]]], [fine, asked]
    end

    def test_what_stays_worse_fails_and_the_message_says_what_to_do
      fine, _asked, text = check({ "iodine" => ratio(0.8) }, [{ "iodine" => ratio(0.9) }, { "iodine" => ratio(0.91) }])
      refute fine
      assert_match(%r{hello-64, CPU / iodine's: 0\.910 .*recorded 0\.800, at most 0\.880: WORSE}, text)
      assert_match(%r{bench/regress OLD NEW hello-64 .*bench/run --record hello-64}, text)
    end

    def test_what_cannot_be_measured_fails
      refute check({ "puma" => ratio(0.5) }, [{}, {}]).first
    end

    def test_a_percentile_fails_only_with_quartiles_apart
      recorded = { "puma" => ratio(0.4, low: 0.3, high: 0.5) }
      wide = { "puma" => ratio(0.6, low: 0.4, high: 0.7) }
      apart = { "puma" => ratio(0.6, low: 0.55, high: 0.7) }
      assert check(recorded, [wide], name: "rate-2000").first
      refute check(recorded, [apart, apart], name: "rate-2000").first
    end

    def test_missing_peers_are_named_and_not_compared
      fine, asked, text = check({ "puma" => ratio(0.5), "iodine" => ratio(0.8) }, [{ "puma" => ratio(0.5) }], there: %w[firebrick puma])
      assert_equal [true, [[%w[puma], 5]]], [fine, asked]
      assert_match(/hello-64: not compared with iodine: not there/, text)
      assert_raises(Bench::Failure) { check({ "iodine" => ratio(0.8) }, [], there: %w[firebrick]) }
    end

    def test_a_recorded_scenario_that_is_no_more_is_named
      assert_match(/gone is on record/, assert_raises(Bench::Failure) { check({ "puma" => ratio(0.5) }, [], name: "gone") }.message)
    end
  end

  # The command itself, with slices of one second.
  class CommandTest < Minitest::Test
    include Built

    def setup
      need_firebrick
      %w[puma wrk].each { |program| skip "#{program} is not installed" unless Bench::Machine.there?(program) }
      @folder = Dir.mktmpdir("firebrick-record")
    end

    def teardown = @folder && FileUtils.rm_rf(@folder)

    def bench(*words)
      pinned = Etc.nprocessors > 1 ? [] : ["--no-pin"]
      out, status = Open3.capture2e({ "FIREBRICK" => BINARY }, File.join(ROOT, "bench/run"), "--folder", @folder, "--without", "iodine", "--rounds", "1", *pinned, *words)
      [status.exitstatus, out]
    end

    # Checks the record after its ratio has been replaced.
    def check_with(median)
      path = File.join(@folder, "record.json")
      document = JSON.parse(File.read(path))
      document["scenarios"]["hello-64"]["ratios"]["puma"].merge!("median" => median)
      File.write(path, JSON.generate(document))
      bench("--check", "hello-64")
    end

    def test_a_scenario_is_recorded_and_checked
      status, out = bench("--record", "hello-64")
      assert_equal 0, status, out
      table = File.read(File.join(@folder, "RESULTS.md"))
      %w[firebrick puma].each { |server| assert_match(%r{^\| hello-64 \| 1x5 \| #{server} \| CPU µs/request \| [\d.]+ \|}, table) }
      status, out = check_with(1000.0)
      assert_equal [0, true], [status, out.include?("No ratio is more than 10 % worse")], out
      status, out = check_with(0.001)
      assert_equal 1, status, out
      assert_match(/measured again.*3 rounds\), recorded 0\.001, at most 0\.001: WORSE/m, out)
    end

    def test_without_a_record_the_command_says_so
      status, out = bench("--check")
      assert_equal [2, true], [status, out.include?("record.json does not exist: bench/run --record")], out
    end
  end
end
