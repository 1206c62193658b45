# frozen_string_literal: true

require_relative "contestants"
require_relative "generators"
require_relative "setup"
require_relative "trial"

module Bench
  module Shootout
    # The base of all scenarios: `name`, `title` and `about` of the class, `tables` with their trials.
    class Scenario
      class << self
        attr_reader :key, :title

        def called(key, title)
          @key = key
          @title = title
        end
      end

      # The columns of a load on a server.
      RATE = Column.new(title: "requests/s", metric: :rate, better: "more")
      CPU = Column.new(title: "CPU µs/request", metric: :cpu_us, better: "less")
      TO_FIREBRICK = Column.new(title: "CPU, firebrick = 1", metric: :cpu_us, to: "firebrick")
      TIMES = [Column.new(title: "p50 ms", metric: :p50), Column.new(title: "p99 ms", metric: :p99, better: "less")].freeze
      LONGEST = Column.new(title: "max ms", metric: :longest)
      ERRORS = Column.new(title: "errors", metric: :errors)
      PSS = Column.new(title: "PSS MiB", metric: :pss, better: "less")
      BUSY = Column.new(title: "generator busy", metric: :busy)

      def initialize(setup)
        @setup = setup
        @size = setup.size
      end

      def key = self.class.key

      def title = self.class.title

      def tables = raise(NotImplementedError)

      # The goals.
      def goals = []

      # Versions of things that are not a Program: { name => text }.
      def versions = {}

      # Starts the programs that have to run beside; the block measures.
      def around = yield

      # Names of programs that all trials need.
      def needs = []

      def trials = tables.flat_map(&:trials)

      private

      # A row for each contestant, loaded by the generator in the same setting.
      def rows(contestants, target, generator, seconds:, lasting:, warm_up: nil)
        contestants.map do |name, contestant|
          work = lambda do
            setting = @setup.generator(seconds)
            @setup.measure(contestant.layers, target, generator, setting) { |stack| warm_up&.run(stack.url, @setup.generator([seconds, 1].min)) }
          end
          Trial.new(name: name, cells: [name], needs: contestant.needs, configuration: Contestants.written_down(contestant), seconds: lasting, work: work)
        end
      end

      def bars(name, title, metric, label, better, unit: "per_second", **rest)
        Plot.new(name: name, title: title, metric: metric, label: label, unit: unit, better: better, **rest)
      end
    end
  end
end
