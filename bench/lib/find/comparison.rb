# frozen_string_literal: true

require_relative "../served_app"

module Bench
  module Find
    # The rate that `firebrick bench --find` finds, beside a sweep of rates around it.
    #
    # 1. Requests arrive at random, as in the search, in each run at other times. The sweep's rate is the highest step of 1 % at which the objective
    #    holds in two of three runs, and at all steps below.
    # 2. The search and the sweep use the same server, one after the other, so what changes in the machine meanwhile is a difference.
    class Comparison
      include ServedApp

      # An app that waits, and one that computes: [code, workers, threads].
      APPS = { "wait" => ["sleep(0.02)", 1, 8], "compute" => ["compute(0.01)", 1, 2], "mix" => ["compute(0.004); sleep(0.016)", 1, 4] }.freeze
      OBJECTIVE = ["p95", 0.2].freeze
      SECONDS = 15
      STEPS = (-5..6)
      CLOSE = 0.03
      WITHIN = 90

      def initialize(apps:, rounds:)
        @apps = apps
        @rounds = rounds
      end

      # Returns whether all searches were close to the sweep and ended in time.
      def run
        in_folder("find") do
          puts "| app | found | by the sweep | difference | the search took |", "|---|---:|---:|---:|---:|"
          @apps.product((1..@rounds).to_a).map { |name, _| measure(name) }.all?
        end
      end

      private

      def measure(name)
        code, *shape = APPS.fetch(name)
        server = serve(write_app(name, code), "-w {workers} -t {threads}:{threads}", shape)
        found, took = search(server.port)
        best = sweep(server.port, found)
        difference = (found / best) - 1
        puts format("| %s | %.1f/s | %.1f/s | %+.1f %% | %.0f s |", name, found, best, difference * 100, took)
        difference.abs <= CLOSE && took <= WITHIN
      ensure
        server&.stop
      end

      def search(port)
        began = now
        result = bench(port, "--find", "#{OBJECTIVE.first}<#{(OBJECTIVE.last * 1000).round}ms")
        rate = result.dig("result", "rate_per_s") or raise Failure, "no rate was found: #{result['result']}"
        [rate, now - began]
      end

      # All steps below the one that does not hold do.
      def sweep(port, around)
        best = nil
        STEPS.each do |percent|
          rate = around * (1 + (percent / 100.0))
          break unless holds?(port, rate)

          best = rate
        end
        best or raise Failure, format("the objective does not hold at %.1f/s, 5 %% below the rate that was found", around * 0.95)
      end

      def holds?(port, rate)
        runs = []
        runs << holds_once?(port, rate) until runs.count(true) == 2 || runs.count(false) == 2
        runs.count(true) == 2
      end

      def holds_once?(port, rate)
        @seed = @seed.to_i + 1
        result = bench(port, "--rate", format("%.2f/s", rate), "--arrivals", "random:#{@seed}", "-d", "#{SECONDS}s", "--expect-status", "200")
        result.dig("summary", "errors").zero? && result.dig("summary", "latency_ms", OBJECTIVE.first) < OBJECTIVE.last * 1000
      end
    end
  end
end
