# frozen_string_literal: true

require "fileutils"
require_relative "markdown"
require_relative "plots"
require_relative "programs"
require_relative "store"

module Bench
  module Shootout
    # Measures scenario after scenario, round after round, and stores the results.
    class Runner
      # options: size, scenarios, output and chapter, see Options; dir: a directory for temporary files; out: progress output.
      def initialize(options, dir, out: $stdout)
        @options = options
        @setup = Setup.new(options.size, dir)
        @scenarios = options.scenarios.map { |scenario| scenario.new(@setup) }
        @out = out
      end

      # Returns whether everything could be measured, and no goal was missed.
      def run
        check_firebrick
        make_output
        introduce
        begin
          @scenarios.map { |scenario| measure(scenario) }.all?
        ensure
          report
        end
      end

      # Writes RESULTS.md and the plots from the stored results; also after an interruption.
      def report
        documents = Store.read(@options.output, chapter)
        return @out.puts("Nothing was measured yet.") if documents.empty?

        problem = Plots.new.draw(@options.output, documents)
        Markdown.write(@options.output, documents, chapter)
        @out.puts "Written: #{File.join(@options.output, 'RESULTS.md')}#{" (#{problem})" if problem}"
      end

      private

      def chapter = @options.chapter

      def check_firebrick
        return if File.executable?(@setup.firebrick)

        raise Failure, "#{@setup.firebrick} was not found: build it with `make optimised`, or name another with FIREBRICK=PATH"
      end

      # Fails now rather than after an hour.
      def make_output
        FileUtils.mkdir_p(File.join(@options.output, Store::FOLDER))
      rescue SystemCallError => e
        raise Failure, "--output #{@options.output}: #{e.message}; name a folder that can be written to"
      end

      def introduce
        missing = Programs.missing(@scenarios.flat_map { |scenario| programs(scenario, scenario.trials) }.uniq)
        @out.puts "Missing, and left out: #{missing.join(', ')}. To have them: bench/shootout --install, or\n  #{Programs.apt(missing)}" if missing.any?
        seconds = @scenarios.sum { |scenario| scenario.trials.sum { |trial| estimate(trial) } }
        @out.puts "About #{duration(seconds)}, until #{(Time.now + seconds).strftime('%H:%M')}. What is measured is kept, whenever you interrupt."
      end

      def duration(seconds) = seconds < 120 ? "#{seconds.round} s" : "#{(seconds / 60.0).round} min"

      def estimate(trial)
        return 0 if absence(trial)

        trial.seconds * (trial.once_over && trial.seconds > trial.once_over ? 1 : @options.size.rounds)
      end

      # True if every figure was measured and no request failed.
      def measure(scenario)
        tables = scenario.tables
        store = Store.new(scenario, tables, @options.size, @options.output)
        @out.puts "", "## #{scenario.title}", ""
        missing = Programs.missing(scenario.needs)
        return skip(store, missing) if missing.any?

        trials = present(tables.flat_map(&:trials), store)
        store.versions(programs(scenario, trials), @setup.firebrick, scenario.versions)
        scenario.around { rounds(trials, store) }
        store.complete
        show(store)
      end

      def skip(store, missing)
        store.skip("#{missing.join(', ')} not found: `#{Programs.apt(missing)}`")
        @out.puts store.data["skipped"]
        false
      end

      # The trials that can be measured; the others are recorded as missing.
      def present(trials, store)
        trials.reject { |trial| absence(trial)&.then { |text| store.missing(trial, text) } }
      end

      def absence(trial)
        missing = Programs.missing(trial.needs)
        missing.empty? ? trial.absent : "not installed: `#{Programs.apt(missing)}`"
      end

      def programs(scenario, trials) = (scenario.needs + trials.flat_map(&:needs)).uniq

      def rounds(trials, store)
        @options.size.rounds.times do |round|
          store.busy(Machine.busy_share)
          trials.each do |trial|
            next if trial.once_over && store.rounds(trial).any? { |one| one["elapsed"].to_f > trial.once_over }

            progress("round #{round + 1} of #{@options.size.rounds}: #{trial.name}")
            store.add(trial, attempt(trial))
          end
        end
      ensure
        progress("")
      end

      # The figures of a trial, or a Failure. A load generator that hangs is tried once more, which is noted.
      def attempt(trial)
        trial.work.call
      rescue Late
        again = once_more(trial)
        again.is_a?(Failure) ? again : again.merge(repeated: 1)
      rescue Failure => e
        message_of(e)
      end

      def once_more(trial)
        trial.work.call
      rescue Failure => e
        message_of(e)
      end

      # The message without paths of this machine.
      def message_of(failure)
        Failure.new(failure.message.gsub(@setup.dir, "{work}").gsub(@setup.firebrick, "firebrick").gsub("#{Setup::ROOT}/", ""))
      end

      def progress(text)
        @out.print("\r\e[K#{text}") if @out.tty?
      end

      def show(store)
        tables = store.data["tables"]
        tables.each do |table|
          @out.puts "", table["title"], "" unless table["title"].empty?
          @out.puts Markdown.grid(table)
        end
        [Goals.lines(store.data), Markdown.notes(store.data)].each { |text| @out.puts "", text unless text.empty? }
        tables.flat_map { |table| table["rows"] }.all? { |row| row["missing"] || Markdown.errors(row) == "0" } && !Goals.missed?(store.data)
      end
    end
  end
end
