# frozen_string_literal: true

require_relative "comparison"
require_relative "failure"

module Bench
  # Turns the results of a comparison into rows of a Markdown table.
  #
  # A figure is the median of the rounds. A ratio is the median of each round's ratio to the first
  # server, so that a temporary disturbance of the machine affects both sides.
  class Report
    HEAD = ["scenario", "shape", "server", "requests/s", "CPU ms/request", "x CPU", "p50 ms", "p99 ms", "p99/p50",
            "max ms", "errors", "PSS MiB", "x PSS"].freeze

    def self.head(first)
      titles = HEAD.map { |title| title.sub(/\Ax /, "x #{first}'s ") }
      "| #{titles.join(' | ')} |\n|#{'---|' * 3}#{'---:|' * (HEAD.size - 3)}"
    end

    def initialize(name, shape, results)
      @name = name
      @shape = shape
      @results = results
    end

    # Lines of the table, one per server.
    def rows
      first = @results.values.first
      @results.map do |server, rounds|
        "| #{[@name, @shape.join('x'), server, *figures(rounds, first)].join(' | ')} |"
      end
    end

    # Lines about failures, below the table.
    def notes
      @results.flat_map do |server, rounds|
        failures = rounds.grep(Failure).map(&:message).uniq.map { |message| "#{@name}, #{server}: #{message}" }
        killed = rounds.grep(Result).sum { |result| result.killed.to_i }
        failures << "#{@name}, #{server}: #{killed} processes had to be killed after TERM" if killed.positive?
        failures
      end
    end

    # True if any request or round failed.
    def failed? = @results.values.flatten.any? { |one| one.is_a?(Failure) || one.sample.errors.positive? }

    def to_h
      rounds = @results.transform_values do |list|
        list.map do |one|
          one.is_a?(Failure) ? { failure: one.message } : one.sample.to_h.merge(cpu_ms: one.cpu_ms, pss_start_mib: one.pss_start, pss_mib: one.pss, killed: one.killed)
        end
      end
      { scenario: @name, workers: @shape[0], threads: @shape[1], servers: rounds }
    end

    def self.median(values)
      sorted = values.compact.sort
      return if sorted.empty?

      (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
    end

    private

    def figures(rounds, first)
      good = rounds.grep(Result)
      return ["failed", *Array.new(HEAD.size - 4, "")] if good.empty?

      middle = ->(&value) { self.class.median(good.map(&value)) }
      p50 = middle.call { |one| one.sample.p50 }
      p99 = middle.call { |one| one.sample.p99 }
      [number(middle.call(&:rate), 1), number(middle.call(&:cpu_ms), 4), ratio(rounds, first, &:cpu_ms),
       number(p50, 2), number(p99, 2), number(p50 && p99 && (p99 / p50), 1), number(middle.call { |one| one.sample.longest }, 1),
       good.sum { |one| one.sample.errors } + (rounds.size - good.size), number(middle.call(&:pss), 1), ratio(rounds, first, &:pss)]
    end

    def ratio(rounds, first, &value)
      pairs = rounds.zip(first).select { |pair| pair.all?(Result) }.map { |pair| pair.map(&value) }
      number(self.class.median(pairs.filter_map { |own, other| own.fdiv(other) if other.positive? }), 2)
    end

    # Fixed decimals for small numbers, thousands separators for large ones.
    def number(value, places)
      return "–" unless value
      return value.round.to_s.gsub(/(\d)(?=(\d{3})+\z)/, '\1,') if value >= 1_000

      format("%.#{places}f", value)
    end
  end
end
