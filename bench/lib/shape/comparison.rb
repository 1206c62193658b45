# frozen_string_literal: true

require_relative "../served_app"
require_relative "histogram"
require_relative "shapes"

module Bench
  module Shape
    # A server with an objective, which starts with one thread, compared with servers of fixed shapes, and under three times the load that it can take.
    #
    # 1. The best fixed shape is the one with the highest rate of CLIENTS users who do not pause.
    # 2. The objective's server gets the same users until it has reached a part of that rate, or a time is over.
    # 3. Goodput is the rate of good responses within the objective. Its peak is that at the best fixed shape's rate.
    class Comparison
      include ServedApp
      include Shapes

      SHAPES = [1, 2].product([1, 2, 4, 8, 16, 32, 64]).freeze
      ENOUGH = 0.95

      def initialize(apps:, slice:, within:, overload:)
        @apps = apps
        @slice = slice
        @within = within
        @overload = overload
      end

      # Returns whether each app has reached the part of the best shape.
      def run
        in_folder("shape") do
          puts "| app | best fixed shape | requests/s | with slo, from 1x1 | x | #{(ENOUGH * 100).round} % after | goodput peak | at #{@overload}x: fixed | slo | slo x peak |", "|---|---|---:|---|---:|---:|---:|---:|---:|---:|"
          @apps.map { |name| measure(name) }.all?
        end
      end

      private

      def measure(name)
        app = write_app(name, APPS.fetch(name))
        best, rate = SHAPES.map { |shape| [shape, fixed(app, shape) { |port| closed(port) }] }.max_by(&:last)
        peak, fixed_goodput = fixed(app, best) { |port| [goodput(port, rate * 0.9), goodput(port, rate * @overload)] }
        with_objective(app) do |server|
          reached, after = follow(server, rate)
          shape = control(app, "shape")
          under = goodput(server.port, rate * @overload)
          puts format("| %s | %dx%d | %.0f | %dx%d, %.0f/s | %.2f | %s | %.0f | %.0f | %.0f | %.2f |", name, *best, rate, shape["workers"], shape["seats"], reached, reached / rate,
                      after ? format("%.0f s", after) : "never", peak, fixed_goodput, under, under / peak)
          !after.nil?
        end
      end

      # Loads the server until the rate is nearly that of the best shape. Returns the rate, and after how many seconds it was reached.
      def follow(server, best)
        began = now
        best_so_far = 0
        loop do
          rate = closed(server.port)
          best_so_far = [best_so_far, rate].max
          return [rate, now - began] if rate >= best * ENOUGH
          return [best_so_far, nil] if now - began > @within
        end
      end

      # A few seconds pass before an overload is recognised: they count as well.
      def goodput(port, rate)
        result = load(port, "--rate", format("%d/s", rate), "-c", "4000", "--timeout", "10s", seconds: @slice * 5)
        Histogram.count_up_to(result.dig("outcome", "latency"), OBJECTIVE * 1e6) / result.dig("outcome", "seconds")
      end
    end
  end
end
