# frozen_string_literal: true

require_relative "report"

module Bench
  # The table of the scenarios without an app. Requests take a few microseconds each, and the table is about the ratio of
  # Firebrick's CPU to a peer's, next to the goal for it; so each peer's row has that ratio.
  class PeerReport < Report
    HEAD = ["scenario", "server", "requests/s", "CPU µs/request", "firebrick's part of it", "at most", "p50 ms", "p99 ms",
            "max ms", "errors", "PSS MiB at start", "PSS MiB"].freeze
    OURS = "firebrick"

    def self.head(_first) = "| #{HEAD.join(' | ')} |\n|#{'---|' * 2}#{'---:|' * (HEAD.size - 2)}"

    # wanted: { peer => the largest ratio of our CPU to its CPU }; limits: { start:, load: } in MiB for Firebrick.
    def initialize(name, shape, results, wanted: {}, limits: {})
      super(name, shape, results)
      @wanted = wanted
      @limits = limits
    end

    def rows
      @results.map { |server, rounds| "| #{[@name, server, *figures(server, rounds)].join(' | ')} |" }
    end

    private

    def figures(server, rounds)
      good = rounds.grep(Result)
      return ["failed", *Array.new(HEAD.size - 3, "")] if good.empty?

      middle = ->(&value) { self.class.median(good.map(&value)) }
      [number(middle.call(&:rate), 1), number(middle.call { |one| one.cpu_ms * 1000 }, 2), part(server, rounds), number(@wanted[server], 2),
       *%i[p50 p99 longest].map { |time| number(middle.call { |one| one.sample[time] }, 2) },
       good.sum { |one| one.sample.errors } + (rounds.size - good.size),
       memory(server, :start, middle.call(&:pss_start)), memory(server, :load, middle.call(&:pss))]
    end

    def part(server, rounds)
      server == OURS ? "–" : ratio(@results.fetch(OURS, []), rounds, &:cpu_ms)
    end

    def memory(server, moment, value)
      limit = @limits[moment] if server == OURS
      "#{number(value, 1)}#{" (at most #{limit})" if limit}"
    end
  end
end
