# frozen_string_literal: true

require_relative "failure"
require_relative "ratio"
require_relative "scenarios"

module Bench
  # Compares fresh ratios with those on record.
  class RecordCheck
    # A ratio is worse if it exceeds the recorded one by this factor.
    LIMIT = 1.1

    # One comparison. metric: what the ratio is of; recorded and measured: Ratio, the latter nil when it could not be measured.
    Verdict = Struct.new(:scenario, :peer, :metric, :recorded, :measured, keyword_init: true) do
      # The 99th percentile is measured on few requests, so its ratio varies by more than the limit. Its quartiles must not overlap,
      # either.
      def worse?
        return true unless measured

        measured.median > highest && (metric != :p99 || measured.low > recorded.high)
      end

      # The largest ratio that passes.
      def highest = recorded.median * LIMIT

      def to_s
        return "#{scenario} beside #{peer}: not measured, see above" unless measured

        format("%<scenario>s, %<what>s: %<median>.3f (quartiles %<low>.3f to %<high>.3f, %<rounds>d rounds), recorded %<recorded>.3f, at most %<highest>.3f: %<verdict>s",
               scenario: scenario, what: what, **measured.to_h, recorded: recorded.median, highest: highest, verdict: worse? ? "WORSE" : "ok")
      end

      def advice
        "#{scenario}: bench/regress OLD NEW #{scenario} finds the change that made it worse; bench/run --record #{scenario} records the new figure if it is wanted"
      end

      def what
        return "p99 / p50" if peer == OWN

        "#{{ cpu: 'CPU', p99: 'p99', connection: 'memory of a connection' }.fetch(metric)} / #{peer}'s"
      end
    end

    # rounds: of the first measurement; there: called with a Scenario, returns the names of its installed servers; measure: called with
    # a Scenario, peers and rounds, returns { peer => Ratio }; out: called with each line.
    def initialize(record, rounds:, there:, measure:, out:)
      @record = record
      @rounds = rounds
      @there = there
      @measure = measure
      @out = out
    end

    # Names of scenarios, each in the record. Returns whether no ratio is worse; raises Failure if nothing can be compared.
    def call(names)
      wanted = names.to_h { |name| [scenario(name), @record.ratios(name)] }
      checks = wanted.to_h { |scenario, recorded| [scenario, present(scenario, recorded)] }.reject { |_scenario, recorded| recorded.empty? }
      raise Failure, "nothing to compare: no peer on record is installed here" if checks.empty?

      worse = checks.flat_map { |scenario, recorded| check(scenario, recorded) }.select(&:worse?)
      @out.call("")
      @out.call(worse.empty? ? "No ratio is more than 10 % worse than on record." : "#{worse.size} ratios are more than 10 % worse than on record:")
      worse.each { |verdict| @out.call("- #{verdict}") }
      worse.map(&:advice).uniq.each { |advice| @out.call("- #{advice}") }
      worse.empty?
    end

    private

    def scenario(name)
      SCENARIOS.find { |one| one.name == name } or
        raise Failure, "#{name} is on record, but there is no such scenario (any more): remove it from the record, or measure it under its new name with bench/run --record"
    end

    def present(scenario, recorded)
      there = @there.call(scenario)
      missing = there.include?("firebrick") ? recorded.keys - there - [OWN] : recorded.keys
      @out.call("#{scenario.name}: not compared with #{missing.join(', ')}: not there") if missing.any?
      recorded.except(*missing)
    end

    # A worse ratio is measured a second time, with more rounds, and the second result counts.
    def check(scenario, recorded)
      first = verdicts(scenario, recorded, @rounds)
      first.each { |verdict| @out.call(verdict.to_s) }
      doubtful = first.select(&:worse?).map(&:peer)
      return first if doubtful.empty?

      @out.call("#{scenario.name}: measured again")
      again = verdicts(scenario, recorded.slice(*doubtful), (2 * @rounds) + 1)
      again.each { |verdict| @out.call(verdict.to_s) }
      first.reject(&:worse?) + again
    end

    def verdicts(scenario, recorded, rounds)
      measured = @measure.call(scenario, recorded.keys, rounds)
      recorded.map { |peer, ratio| Verdict.new(scenario: scenario.name, peer: peer, metric: scenario.metric, recorded: ratio, measured: measured[peer]) }
    end
  end
end
