# frozen_string_literal: true

require_relative "../scenario"

module Bench
  module Shootout
    # A Rack app in six workers under ab: the classic comparison of application servers.
    class SixWorkers < Scenario
      called "six-workers", "Six workers under ab"
      SHAPE = [6, 5].freeze
      CONCURRENCY = 200
      WARM_UP = 1_000

      def needs = %w[ab ruby]

      def tables
        columns = [RATE, CPU, TO_FIREBRICK, *TIMES, LONGEST, ERRORS, PSS, BUSY]
        [Table.new(title: "", text: text, heads: ["server"], columns: columns, trials: servers, plots: plots)]
      end

      private

      def text
        "A Rack app that answers a page of #{Sites::PAGE.bytesize} bytes, `#{load}` after #{WARM_UP} requests to warm up; a connection per request. Six processes; " \
          "Puma and Firebrick with #{SHAPE[1]} threads in each, Unicorn and Passenger (its free edition) with one. “nginx + …”: behind nginx."
      end

      def load = Generators::Ab.new(requests: @size.ab_requests, concurrency: CONCURRENCY)

      def servers
        target = @setup.target(@setup.app("page"), SHAPE, Stack::Expected.of(Sites::PAGE))
        everybody = Contestants.bare(@setup).merge(Contestants.behind_nginx(@setup))
        rows(everybody, target, load, seconds: 1, lasting: 6, warm_up: Generators::Ab.new(requests: WARM_UP, concurrency: CONCURRENCY))
      end

      def plots
        [bars("six-workers-rate", "Six workers under ab: requests per second", :rate, "requests", "more"),
         bars("six-workers-p99", "Six workers under ab: the 99th percentile", :p99, "99 of 100 answers came within", "less", unit: "milliseconds")]
      end
    end
  end
end
