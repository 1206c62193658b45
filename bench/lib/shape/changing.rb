# frozen_string_literal: true

require_relative "../served_app"
require_relative "shapes"

module Bench
  module Shape
    # A server with an objective under a load that changes again and again: how long the objective is broken, and whether the shape goes back and forth.
    #
    # 1. Each load is a part of the rate that a fixed shape reaches, and lasts for `every` seconds. The parts are the same in each run.
    # 2. A second is broken if the 95th percentile of the responses to its requests missed the objective, or a request failed.
    # 3. A reversal is a shape that came again under one and the same load: the server left it, and went back. Trials that were reverted are none, because the
    #    server says so itself.
    class Changing
      include ServedApp
      include Shapes

      PARTS = [0.1, 0.6, 0.3, 0.85, 0.2, 0.45, 0.7, 0.1, 0.85, 0.5].freeze
      # The fixed shape that the rates are parts of: it has what each of the apps needs.
      FULL = [2, 16].freeze
      STAYED = %w[kept shrunk].freeze

      def initialize(apps:, minutes:, every:)
        @apps = apps
        @loads = [(minutes * 60 / every).round, 1].max
        @every = every
        @slice = 5
      end

      # Returns whether no shape went back and forth.
      def run
        in_folder("shape") do
          puts "| app | loads of #{@every} s | up to | changes of the shape | reversals | broken: seconds of all | at most, of one load |", "|---|---:|---:|---:|---:|---:|---:|"
          @apps.map { |name| measure(name) }.all?(&:zero?)
        end
      end

      private

      def measure(name)
        app = write_app(name, APPS.fetch(name))
        rate = fixed(app, FULL) { |port| closed(port) }
        with_objective(app) do |server|
          loads = Array.new(@loads) { |number| under(server, app, rate * PARTS[number % PARTS.size]) }
          broken = loads.map { |load| load[:broken] }
          reversals = loads.sum { |load| reversals(load[:shapes]) }
          puts format("| %s | %d | %d/s | %d | %d | %d of %d | %d |", name, @loads, rate * PARTS.max, loads.sum { |load| load[:shapes].size - 1 }, reversals, broken.sum, @loads * @every, broken.max)
          # The loads under which the objective was broken, or all.
          loads.each.with_index(1) { |load, number| warn format("%s: load %d, %s", name, number, load) if ENV["SHAPE_LOADS"] || load[:broken].positive? }
          reversals
        end
      end

      # Sends one load. Returns its broken seconds, and the shapes that the server had meanwhile.
      def under(server, app, rate)
        before = control(app, "shape")
        result = load(server.port, "--rate", format("%d/s", rate), "--arrivals", "random:1", "-c", "2000", "--timeout", "10s", seconds: @every)
        after = control(app, "shape")
        known = before["steps"].map { |step| step["at"] }
        stayed = after["steps"].reject { |step| known.include?(step["at"]) }.select { |step| STAYED.include?(step["verdict"]) }
        broken = result.dig("outcome", "course").count { |second| second["errors"].positive? || second["p95"].to_i > OBJECTIVE * 1e6 }
        { rate: rate.round, broken: broken, shapes: [before.values_at("workers", "seats").join("x"), *stayed.map { |step| step["to"] }] }
      end

      # Shapes that were left and came again.
      def reversals(shapes)
        shapes.each_index.count { |at| at > 1 && shapes[at] != shapes[at - 1] && shapes[...(at - 1)].include?(shapes[at]) }
      end
    end
  end
end
