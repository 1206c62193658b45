# frozen_string_literal: true

require "optparse"
require_relative "../failure"
require_relative "scenarios"
require_relative "setup"

module Bench
  module Shootout
    # The command line's options, validated.
    class Options
      # Not in git: the record of `bench/run` is what is kept there.
      BENCH = File.join(Setup::ROOT, "bench/results")
      # Figures of quick runs are not for publication.
      QUICK = File.join(Setup::ROOT, "tmp/shootout")

      attr_reader :size, :scenarios, :output

      def initialize(words)
        names = parser.parse(words)
        @size = (@quick ? Size.quick : Size.full).with(rounds: @rounds, seconds: @seconds)
        @output = File.expand_path(@output || (@quick ? QUICK : BENCH))
        @scenarios = select(names)
      rescue OptionParser::ParseError => e
        raise Failure, "#{e.message}; --help lists the options"
      end

      def chapter = CHAPTER

      def install? = @install

      def report_only? = @report_only

      def list? = @list

      private

      def parser
        OptionParser.new do |o|
          o.banner = "Usage: bench/shootout [options] [SCENARIO...]   (a SCENARIO may end in *; none: all, about an hour)\n\n" \
                     "Measures Firebrick beside its peers, as people do who compare servers, and writes RESULTS.md and plots.\n" \
                     "Interrupt it whenever you like: what was measured is kept.\n\n"
          o.on("--install", "first install what is missing from Debian's packages (with sudo, unless root)") { @install = true }
          o.on("--quick", "everything in small, one round, about five minutes; written to tmp/shootout") { @quick = true }
          o.on("--rounds N", Integer, "rounds, servers taking turns in each (3; --quick: 1)") { |n| @rounds = Failure.unless_positive("--rounds", n) }
          o.on("--seconds S", Integer, "length of a siege (60; --quick: 4); other timed loads (5) and sleeps (10) last no longer") { |n| @seconds = Failure.unless_positive("--seconds", n) }
          o.on("--output DIR", "where RESULTS.md and plots/ are written (bench/results; --quick: tmp/shootout)") { |dir| @output = dir }
          o.on("--report", "measure nothing: write RESULTS.md and plots again from what was measured before") { @report_only = true }
          o.on("--list", "list the scenarios and exit") { @list = true }
          o.on("-h", "--help", "this text") { puts(o) || exit }
        end
      end

      def select(names)
        return CHAPTER.scenarios if names.empty?

        found = names.flat_map do |name|
          CHAPTER.scenarios.select { |one| File.fnmatch(name, one.key) }.tap do |matching|
            raise Failure, "no scenario is called #{name}: available are #{CHAPTER.keys.join(', ')}" if matching.empty?
          end
        end
        CHAPTER.scenarios & found
      end
    end
  end
end
