# frozen_string_literal: true

# The shoot-out on a small scale: its figures, its files, its clean end. Run: ruby bench/test/shootout_test.rb
# With a Firebrick (FIREBRICK, or built in target/) it also measures one scenario with the peers that are installed.
require "minitest/autorun"
require "open3"
require "tmpdir"
require_relative "built"
require_relative "../lib/shootout/options"
require_relative "../lib/shootout/runner"

module ShootoutTest
  class Case < Minitest::Test
    include Bench
    include Bench::Shootout
  end

  # A stored table: rates of three servers, two rounds; the last is apart.
  def self.table(**changes)
    columns = [{ "title" => "requests/s", "metric" => "rate", "better" => "more" }, { "title" => "CPU", "metric" => "cpu", "better" => "less" },
               { "title" => "CPU, a = 1", "metric" => "cpu", "to" => "a" }, { "title" => "errors", "metric" => "errors" }]
    { "title" => "", "text" => "", "heads" => ["server"], "comparable" => true, "columns" => columns, "plots" => [],
      "rows" => [row("a", [100, 2.0, 0], [300, 4.0, 0]), row("b", [1000, 1.0, 1], [2000, 8.0, 2]), row("bound", [9000, 0.5, 0], [9000, 0.5, 0], apart: true)] }.merge(changes)
  end

  def self.row(name, *rounds, apart: false)
    { "name" => name, "cells" => [name], "apart" => apart, "configuration" => {},
      "rounds" => rounds.map { |rate, cpu, errors| { "rate" => rate, "cpu" => cpu, "errors" => errors } } }
  end

  class FiguresTest < Case
    def test_numbers_have_three_significant_digits
      { 123_456.7 => "123,000", 1_234 => "1,234", 999.9 => "1,000", 12.345 => "12.3", 0.012345 => "0.0123", 9.999 => "10.0", 0.0 => "0", nil => "–", 5 => "5" }.each do |value, text|
        assert_equal text, Figures.number(value), value.inspect
      end
    end
  end

  class MarkdownTest < Case
    def test_the_best_come_first_with_medians_and_ratios_of_rounds
      lines = Markdown.grid(ShootoutTest.table).lines(chomp: true).drop(2)
      assert_equal ["| bound | 9,000 | 0.500 | 0.188 | 0 |", "| b | 1,500 | 4.50 | 1.25 | 3 |", "| a | 200 | 3.00 | 1.00 | 0 |"], lines
    end

    def test_the_leader_is_named_unless_it_is_apart
      assert_equal "Most requests/s: **b** (1,500); least CPU: **a** (3.00).", Markdown.best(ShootoutTest.table)
    end

    def test_missing_and_failed_rows_stay_in_the_table_and_in_the_notes
      table = ShootoutTest.table("rows" => [ShootoutTest.row("a", [1, 1, 0]), ShootoutTest.row("gone").merge("missing" => "not installed"),
                                            ShootoutTest.row("broken").merge("rounds" => [{ "failure" => "it\n  crashed" }])])
      grid = Markdown.grid(table)
      assert_match(/^\| gone \| not measured \|/, grid)
      assert_match(/^\| broken \| failed \|/, grid)
      assert_equal "- gone: not installed\n- broken: failed: it crashed", Markdown.notes("tables" => [table])
    end

    def test_only_its_own_part_of_the_file_is_replaced
      once = CHAPTER.replace("# Figures\n\nOthers.\n", "one\n")
      twice = CHAPTER.replace("#{once}\nMore of others.\n", "two \\1\n")
      assert_equal "# Figures\n\nOthers.\n\n#{CHAPTER.begin_mark}\ntwo \\1\n#{CHAPTER.end_mark}\n\nMore of others.\n", twice
    end
  end

  class PlotsTest < Case
    PLOT = { "name" => "x", "title" => "X", "note" => "", "metric" => "rate", "label" => "requests", "unit" => "per_second", "better" => "more" }.freeze

    def test_bars_are_medians_with_the_spread_of_the_rounds
      groups = { "a" => ["a", nil], "b" => ["b", nil], "bound" => ["bound", nil] }
      bars = Plots.bars(PLOT.merge("groups" => groups), ShootoutTest.table).fetch("bars")
      assert_equal %w[bound b a], (bars["groups"].map { |group| group["label"] })
      assert_equal({ "value" => 1500.0, "low" => 1000, "high" => 2000 }, bars["groups"][1]["bars"].first)
    end

    def test_series_are_grouped
      groups = { "a" => %w[1x1 puma], "b" => %w[1x1 firebrick], "bound" => %w[2x1 puma] }
      bars = Plots.bars(PLOT.merge("groups" => groups), ShootoutTest.table("comparable" => false)).fetch("bars")
      assert_equal [%w[puma firebrick], [2, 1]], [bars["series"], bars["groups"].map { |group| group["bars"].size }]
    end
  end

  class GeneratorsTest < Case
    def test_h2load_is_parsed
      sample = Generators::H2load.parse(<<~TEXT)
        finished in 2.00s, 51234.50 req/s, 9.24MB/s
        requests: 102469 total, 102533 started, 102469 done, 102469 succeeded, 3 failed, 0 errored, 2 timeout
                             min         max         mean         sd        +/- sd
        time for request:       77us     13.50ms      1.25ms       550us    78.95%
      TEXT
      assert_equal [102_469, 2.0, 5, 13.5], [sample.requests, sample.seconds, sample.errors, sample.longest]
    end

    def test_firebrick_bench_is_parsed
      json = '{"summary": {"requests": 10, "errors": 1, "seconds": 2.0, "latency_ms": {"p50": 1, "p95": 2, "p99": 3, "max": 4}, "corrected_ms": {"p99": 9}}}'
      assert_equal [10, 2.0, 1, 1, 2, 3, 9, 4], Generators::Firebrick.parse(json).to_a
    end

    def test_output_without_a_result_is_shown
      [Generators::H2load, Generators::Firebrick].each do |generator|
        assert_match(/went wrong/, assert_raises(Failure) { generator.parse("went wrong") }.message)
      end
    end
  end

  class OptionsTest < Case
    def test_scenarios_keep_the_order_of_the_report
      assert_equal %w[static-page sleepers], Shootout::Options.new(%w[sleepers static-*]).scenarios.map(&:key)
    end

    def test_quick_figures_do_not_replace_published_ones
      assert_equal Shootout::Options::BENCH, Shootout::Options.new([]).output
      assert_equal Shootout::Options::QUICK, Shootout::Options.new(%w[--quick]).output
    end

    def test_invalid_arguments_are_refused_with_an_example
      { %w[nosuch] => /static-page/, %w[--rounds 0] => /--rounds 3/, %w[--seconds x] => /--help/ }.each do |words, text|
        assert_match text, assert_raises(Failure) { Shootout::Options.new(words) }.message
      end
    end

    def test_seconds_shorten_longer_loads_and_lengthen_only_the_siege
      short = Shootout::Options.new(%w[--seconds 3]).size
      assert_equal [3, 3, 3, 6], [short.siege, short.timed, short.sleep, short.stall]
      long = Shootout::Options.new(%w[--seconds 120]).size
      assert_equal [120, 5, 10, 20], [long.siege, long.timed, long.sleep, long.stall]
    end

    def full(dir) = CHAPTER.scenarios.map { |one| one.new(Setup.new(Size.full, dir)).trials }

    def test_each_trial_of_a_scenario_has_a_unique_name
      Dir.mktmpdir { |dir| full(dir).each { |trials| assert_equal trials.map(&:name).uniq, trials.map(&:name) } }
    end

    def test_all_of_it_takes_an_hour_at_most
      Dir.mktmpdir do |dir|
        seconds = full(dir).flatten.sum { |trial| trial.seconds * (trial.once_over && trial.seconds > trial.once_over ? 1 : 3) }
        assert_operator seconds, :<, 3600
      end
    end
  end

  class StoreTest < Case
    FakeScenario = Struct.new(:key, :title) do
      def goals = []
    end

    def trial(name) = Trial.new(name: name, cells: [name], work: nil)

    def stored(dir) = JSON.parse(File.read(Store.path(dir, "x")))["tables"][0]["rows"].map { |row| row["rounds"].size }

    def test_an_earlier_result_stays_until_every_server_was_measured_again
      Dir.mktmpdir do |dir|
        trials = [trial("a"), trial("b")]
        make = -> { Store.new(FakeScenario.new("x", "X"), [Table.new(title: "", heads: ["server"], columns: [], trials: trials)], Size.quick, dir) }
        first = make.call
        first.add(trials[0], { rate: 1 })
        assert_equal [1, 0], stored(dir), "with nothing before it, half a round is better than nothing"
        3.times { first.add(trials[1], { rate: 1 }) }
        second = make.call
        second.add(trials[0], { rate: 2 })
        assert_equal [1, 3], stored(dir)
        second.add(trials[1], Failure.new("no"))
        assert_equal [1, 1], stored(dir)
      end
    end
  end

  # The command itself, with loads of one second.
  class CommandTest < Case
    include Built

    def setup
      need_firebrick
      skip "siege is not installed" unless Machine.there?("siege")
      @dir = File.realpath(Dir.mktmpdir("shootout-test"))
      @output = File.join(@dir, "out")
    end

    def teardown
      FileUtils.rm_rf(@dir) if @dir
    end

    def env
      # Drawing is tested separately; cargo might have to build for a minute.
      { "FIREBRICK" => BINARY, "TMPDIR" => @dir, "PLOT" => "/bin/false", "RUBYOPT" => "-W:no-deprecated" }
    end

    # Processes started with this test's temporary directory.
    def left_behind
      Dir["/proc/[0-9]*/environ"].select do |path|
        File.binread(path).include?("TMPDIR=#{@dir}\0")
      rescue SystemCallError
        false
      end
    end

    def rows(text) = text.scan(/^\| ([^|]+?) \| ([^|]+?) \|/).to_h

    def test_a_scenario_is_measured_and_stored
      out, status = Open3.capture2e(env, File.join(ROOT, "bench/shootout"), "static-page", "--rounds", "1", "--seconds", "1", "--output", @output)
      assert_equal 0, status.exitstatus, out
      text = File.read(File.join(@output, "RESULTS.md"))
      assert_match(%r{### A static page under siege.*^Most requests/s: }m, text)
      { "firebrick" => nil, "nginx" => "nginx", "h2o" => "h2o", "webrick" => "webrick" }.each do |server, program|
        here = program.nil? || Programs.there?(program) || File.executable?("/usr/sbin/#{program}")
        assert_match(here ? /\A[\d,.]+\z/ : /not measured/, rows(text)[server], text)
      end
      assert_match(/^    firebrick serve .*--root/, text, "configurations are written down")
      assert_match(/open_file_cache max=20000/, text)
      assert_empty left_behind
    end

    def test_an_interrupted_run_keeps_its_results_and_leaves_no_process_behind
      Open3.popen2e(env, File.join(ROOT, "bench/shootout"), "static-page", "--rounds", "50", "--seconds", "1", "--output", @output) do |_in, out, thread|
        path = Store.path(@output, "static-page")
        sleep 0.1 until File.exist?(path) || !thread.alive?
        Process.kill(:TERM, thread.pid)
        text = out.read
        assert_equal 130, thread.value.exitstatus, text
      end
      text = File.read(File.join(@output, "RESULTS.md"))
      assert_match(/\*\*Interrupted\*\*/, text)
      assert_match(/\A[\d,.]+\z/, rows(text)["firebrick"])
      assert_empty left_behind
    end
  end
end
