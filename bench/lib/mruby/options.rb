# frozen_string_literal: true

require "optparse"
require_relative "../shootout/chapter"
require_relative "handlers"

module Bench
  module Mruby
    # The command line's options, validated.
    class Options
      OUTPUT = File.join(Shootout::Setup::ROOT, "bench/results")
      # Figures of quick runs are not for publication.
      QUICK = File.join(Shootout::Setup::ROOT, "tmp/mruby")

      attr_reader :size, :output

      def initialize(words)
        rest = parser.parse(words)
        raise Failure, "#{rest.join(' ')}: expected options only, such as --rounds 3; --help lists them" if rest.any?

        @size = Shootout::Size.full
        @size.rounds = @rounds || (@quick ? 1 : 5)
        @size.timed = @seconds || (@quick ? 2 : 5)
        @output = File.expand_path(@output || (@quick ? QUICK : OUTPUT))
      rescue OptionParser::ParseError => e
        raise Failure, "#{e.message}; --help lists the options"
      end

      def chapter = CHAPTER

      def scenarios = CHAPTER.scenarios

      def report_only? = @report_only

      private

      def parser
        OptionParser.new do |o|
          o.banner = "Usage: bench/mruby [options]\n\n" \
                     "Measures handlers on mruby in Firebrick beside the same in H2O, in about five minutes, and writes RESULTS.md.\n" \
                     "H2O_HEAD=PATH names an H2O that has Redis in it, FIREBRICK=PATH another Firebrick.\n\n"
          o.on("--quick", "one round of 2 s: about half a minute; written to tmp/mruby") { @quick = true }
          o.on("--rounds N", Integer, "rounds, servers taking turns in each (5; --quick: 1)") { |n| @rounds = Failure.unless_positive("--rounds", n) }
          o.on("--seconds S", Integer, "length of each load (5; --quick: 2)") { |n| @seconds = Failure.unless_positive("--seconds", n) }
          o.on("--output DIR", "where RESULTS.md and plots/ are written (bench/results; --quick: tmp/mruby)") { |dir| @output = dir }
          o.on("--report", "measure nothing: write RESULTS.md again from what was measured before") { @report_only = true }
          o.on("-h", "--help", "this text") { puts(o) || exit }
        end
      end
    end
  end
end
