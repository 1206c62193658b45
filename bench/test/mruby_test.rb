# frozen_string_literal: true

# bench/mruby on a small scale: its goals, its options, and one short run. Run: ruby bench/test/mruby_test.rb
# The run needs a Firebrick with mruby (FIREBRICK, or built in target/); H2O takes part if installed.
require "minitest/autorun"
require "open3"
require "tmpdir"
require_relative "built"
require_relative "../lib/mruby/options"
require_relative "../lib/shootout/runner"

module MrubyTest
  class Case < Minitest::Test
    include Bench
    include Bench::Shootout
  end

  class GoalsTest < Case
    # Two servers in two tables, three rounds; the last round of b failed.
    def document(goal)
      table = ->(name, *rounds) { { "rows" => [{ "name" => name, "rounds" => rounds }] } }
      { "goals" => [{ "text" => "a beside b", "metric" => "cpu", "of" => "a", "to" => "b" }.merge(goal)],
        "tables" => [table.call("a", { "cpu" => 1.0 }, { "cpu" => 8.0 }, { "cpu" => 90.0 }), table.call("b", { "cpu" => 2.0 }, { "cpu" => 10.0 }, { "failure" => "it crashed" })] }
    end

    def test_a_ratio_is_the_median_of_the_rounds_own
      reached = document("at_most" => 0.7)
      assert_equal "- **reached**: a beside b: 0.650 (at most 0.7)", Goals.lines(reached)
      refute Goals.missed?(reached)
    end

    def test_missed_goals_are_reported
      [{ "at_most" => 0.6 }, { "at_least" => 0.7 }].each do |limit|
        assert_match(/\A- \*\*missed\*\*: .* #{limit.values.first}\)\z/, Goals.lines(document(limit)))
        assert Goals.missed?(document(limit))
      end
    end

    def test_without_one_of_the_two_no_result_is_claimed
      absent = document("at_most" => 0.6, "to" => "nobody")
      assert_equal "- **not measured**: a beside b: – (at most 0.6)", Goals.lines(absent)
      refute Goals.missed?(absent)
    end

    def test_results_without_goals_can_be_read
      assert_equal "", Goals.lines("tables" => [])
    end
  end

  class OptionsTest < Case
    def test_the_whole_takes_about_five_minutes
      size = Mruby::Options.new([]).size
      Dir.mktmpdir do |dir|
        seconds = Mruby::Handlers.new(Setup.new(size, dir, env: { "H2O_HEAD" => "/bin/true" })).trials.sum { |trial| trial.seconds * size.rounds }
        assert_operator seconds, :<=, 330
      end
    end

    def test_quick_figures_do_not_replace_published_ones
      assert_equal Mruby::Options::OUTPUT, Mruby::Options.new([]).output
      assert_equal Mruby::Options::QUICK, Mruby::Options.new(%w[--quick]).output
    end

    def test_invalid_arguments_are_refused_with_an_example
      { %w[hello] => /--rounds 3/, %w[--seconds 0] => /--seconds 3/, %w[--nosuch] => /--help/ }.each do |words, text|
        assert_match text, assert_raises(Failure) { Mruby::Options.new(words) }.message
      end
    end

    def test_each_goal_compares_existing_rows
      Dir.mktmpdir do |dir|
        handlers = Mruby::Handlers.new(Setup.new(Size.quick, dir, env: {}))
        names = handlers.trials.map(&:name)
        assert_equal names.uniq, names
        assert_empty handlers.goals.flat_map { |goal| [goal.of, goal.to] } - names
      end
    end
  end

  # The command itself, with loads of one second.
  class CommandTest < Case
    include Built

    def setup
      need_firebrick
      %w[wrk redis-server].each { |program| skip "#{program} is not installed" unless Machine.there?(program) }
    end

    def measured(env, output)
      out, status = Open3.capture2e({ "FIREBRICK" => BINARY, **env }, File.join(ROOT, "bench/mruby"), "--rounds", "1", "--seconds", "1", "--output", output)
      # A goal may be missed: on a busy machine, with a second of load, that means nothing.
      assert_includes [0, 1], status.exitstatus, out
      [out, File.read(File.join(output, "RESULTS.md"))]
    end

    def test_handlers_are_measured_and_stored
      Dir.mktmpdir do |dir|
        out, text = measured({ "H2O_HEAD" => nil }, dir)
        assert_equal 2, text.scan(/^\| firebrick \| [\d,.]+ \|/).size, text
        assert_equal 2, text.scan(/^\| h2o head \| not measured \|/).size
        assert_match(/^- \*\*(reached|missed)\*\*: JSON from Redis: requests/, text)
        assert_match(/^- \*\*not measured\*\*: JSON from Redis: CPU/, text)
        assert_match(/H2O_HEAD=PATH/, text)
        assert_match(/^- \*\*(reached|missed)\*\*: hello/, out) if Machine.there?("h2o")
        refute_match(/#{Regexp.escape(dir)}|#{Regexp.escape(BINARY)}/, text, "no paths of this machine")
      end
    end

    def test_a_missing_h2o_is_named
      Dir.mktmpdir do |dir|
        _, text = measured({ "H2O_HEAD" => File.join(dir, "nosuch") }, dir)
        assert_match(/H2O_HEAD is no program/, text)
      end
    end
  end
end
