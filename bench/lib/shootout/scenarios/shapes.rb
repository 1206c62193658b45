# frozen_string_literal: true

require_relative "../../scenarios"
require_relative "../scenario"

module Bench
  module Shootout
    # The three tables of processes x threads: an app that waits, one that computes, one that does both.
    class Shapes < Scenario
      called "shapes", "Processes x threads"
      USERS = 30
      # In slower cells each request waits for many others, so they hardly differ between rounds.
      REPEAT_UP_TO = 15
      APPS = { "io" => "waits 40 to 200 ms, as for a database", "cpu" => "sorts 100,000 numbers", "mix" => "one request in three sorts, the others wait" }.freeze
      SHORT = { "io" => "waits", "cpu" => "computes", "mix" => "waits and computes" }.freeze
      # Seconds of waiting and computing per request, for the estimate of the duration.
      COST = { "io" => [0.12, 0], "cpu" => [0, 0.027], "mix" => [0.08, 0.009] }.freeze

      def needs = %w[siege ruby puma]

      def tables = APPS.map { |app, nature| table(app, nature) }

      private

      def load = Loads::Siege.new(users: USERS, repeats: @size.repeats)

      def table(app, nature)
        Table.new(title: "`bench/apps/#{app}`: #{nature}", text: text(app), heads: ["processes x threads", "server"], columns: columns, trials: cells(app),
                  plots: [plot(app)], comparable: false)
      end

      def text(app)
        return "" unless app == APPS.keys.first

        "#{USERS * @size.repeats} requests, `#{load}`: a connection per request. Servers and siege share all processors. A cell that took more than #{REPEAT_UP_TO} s is measured once."
      end

      def columns
        [Column.new(title: "seconds", metric: :seconds), Column.new(title: "transactions/s", metric: :rate, better: "more"),
         Column.new(title: "CPU ms/request", metric: :cpu_ms), LONGEST, ERRORS, Column.new(title: "PSS MiB", metric: :pss)]
      end

      def cells(app)
        servers = Contestants.bare(@setup).slice("puma", "firebrick")
        @size.shapes.product(servers.to_a).map do |shape, (name, contestant)|
          processes, threads = shape.split("x").map(&:to_i)
          target = @setup.target(@setup.app(app), [processes, threads], Stack::Expected.of(BODIES.fetch(app)), pinned: false)
          Trial.new(name: "#{app}, #{shape}, #{name}", cells: [shape, name], needs: contestant.needs, configuration: written_down(app, shape, contestant),
                    seconds: estimate(app, processes, threads), once_over: REPEAT_UP_TO, work: -> { measure(contestant, target) })
        end
      end

      # Printed once: shapes and apps differ only in the values of the placeholders.
      def written_down(app, shape, contestant)
        app == APPS.keys.first && shape == @size.shapes.first ? Contestants.written_down(contestant) : {}
      end

      def measure(contestant, target)
        figures = @setup.measure(contestant.layers, target, load, @setup.generator(0, pinned: false))
        figures.merge(cpu_ms: figures[:cpu_us] / 1000)
      end

      def estimate(app, processes, threads)
        waiting, computing = COST.fetch(app)
        at_a_time = [processes * threads, USERS].min
        cpus = [processes, Etc.nprocessors].min
        2 + (USERS * @size.repeats * [(waiting + computing) / at_a_time, computing / cpus].max)
      end

      def plot(app)
        Plot.new(name: "shapes-#{app}", title: "Processes x threads: an app that #{SHORT[app]}", metric: :rate, label: "transactions", unit: "per_second", better: "more",
                 groups: ->(trial) { trial.cells })
      end
    end
  end
end
