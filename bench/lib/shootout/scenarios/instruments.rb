# frozen_string_literal: true

require_relative "../../scenarios"
require_relative "../scenario"

module Bench
  module Shootout
    # The load generators themselves on the same servers: their figures, their cost, and the effects that they miss.
    class Instruments < Scenario
      called "instruments", "The instruments themselves"
      CONNECTIONS = 64
      STREAMS = 16
      STALL_CONNECTIONS = 10
      STALL_RATE = 200
      STALL_SECONDS = 1
      FILLED = Column.new(title: "p99 ms, filled in", metric: :filled)
      HELLO = BODIES.fetch("hello")

      def tables
        [closed("nginx", "nginx, `return 200`", nginx, target(@setup.app("hello"), [1, 1]), http1),
         closed("rack", "Firebrick, a Rack app that says hello", Contestants.bare(@setup)["firebrick"], target(@setup.app("hello"), [1, 5]), http1.merge(stages)),
         closed("h2", "H2O over HTTP/2, a file", h2o, @setup.target(Sites.folder("page", @setup.dir), [1, 1], Stack::Expected.of(Sites::PAGE, "/page.html")), http2),
         stall]
      end

      private

      def target(dir, shape, env: {}) = @setup.target(dir, shape, Stack::Expected.of(HELLO), env: env)

      def nginx
        Contestants.one("nginx", Peers.nginx(%(server { listen 127.0.0.1:{port} backlog=4096; default_type text/plain; return 200 "#{HELLO}"; }\n)), %w[nginx], "nothing but the answer")
      end

      def h2o = Contestants.one("h2o", Peers::STATIC["h2o"], %w[h2o], "HTTP/2 with prior knowledge")

      # One thread, like wrk and the others.
      def firebrick(*words) = Generators::Firebrick.new(@setup.firebrick, ["-t", "1", *words])

      def http1(connections = CONNECTIONS)
        { "firebrick bench" => firebrick("-c", connections.to_s, "--no-stages"), "wrk" => Generators::Wrk.new(connections: connections),
          "h2load" => Generators::H2load.new(connections: connections), "ab" => Generators::Ab.new(concurrency: connections, keep_alive: true),
          "siege" => Generators::TimedSiege.new(users: connections, keep_alive: true) }
      end

      # With default options it queries a Firebrick for its stages, which costs both sides some CPU.
      def stages = { "firebrick bench, stages" => firebrick("-c", CONNECTIONS.to_s) }

      def http2
        { "firebrick bench" => firebrick("--streams", STREAMS.to_s, "-c", CONNECTIONS.to_s, "--no-stages"), "h2load" => Generators::H2load.new(connections: CONNECTIONS, streams: STREAMS) }
      end

      # The instrument with which CPU is compared.
      def closed(key, title, server, target, instruments)
        other = instruments.key?("wrk") ? "wrk" : "h2load"
        columns = [Column.new(title: "requests/s", metric: :rate, better: "more"), Column.new(title: "generator's CPU µs/request", metric: :generator_us, better: "less"),
                   Column.new(title: "that, #{other} = 1", metric: :generator_us, to: "#{key}, #{other}"), Column.new(title: "p50 ms", metric: :p50), Column.new(title: "p99 ms", metric: :p99), FILLED,
                   LONGEST, ERRORS, BUSY, Column.new(title: "server's CPU µs/request", metric: :cpu_us)]
        text = "One processor for the server, one for the load generator. “filled in”: with the requests that would have come while the load generator waited for " \
               "answers, an estimate. wrk fills in all its percentiles, and tells no others."
        Table.new(title: title, text: text, heads: ["instrument", "as it was called"], columns: columns, trials: measured(key, server, target, instruments, @size.timed),
                  plots: [plot(key, title)])
      end

      def measured(key, server, target, instruments, seconds)
        instruments.map do |name, instrument|
          work = -> { by_view(instrument, @setup.measure(server.layers, target, instrument, @setup.generator(seconds))) }
          own = instrument.program == @setup.firebrick ? [] : [instrument.program]
          Trial.new(name: "#{key}, #{name}", cells: [name, "`#{instrument.to_s { seconds }}`"], needs: [*own, *server.needs],
                    configuration: name == instruments.keys.first ? Contestants.written_down(server) : {}, seconds: seconds + 2, work: work)
        end
      end

      # wrk's percentiles are always corrected. told: the 99th percentile that a reader sees.
      def by_view(instrument, figures)
        with_reported = figures.merge(told: figures[:p99])
        instrument.program == "wrk" ? with_reported.merge(p99: nil, filled: figures[:p99]) : with_reported
      end

      def plot(key, title)
        bars("instruments-#{key}", "What a request costs the load generator: #{title.delete('`')}", :generator_us, "CPU time of the load generator per request", "less", unit: { "named" => "µs" })
      end

      def stall
        every, lasting = stall_times
        target = target(@setup.app("stall"), [1, 5], env: { "STALL_EVERY" => every.to_s, "STALL_FOR" => lasting.to_s })
        instruments = { **http1(STALL_CONNECTIONS), "firebrick bench, open model" => firebrick("--rate", "#{STALL_RATE}/s") }
        columns = [Column.new(title: "requests/s", metric: :rate), *%i[p50 p95 p99].map { |one| Column.new(title: "#{one} ms", metric: one) }, FILLED,
                   LONGEST, ERRORS]
        server = Contestants.bare(@setup)["firebrick"]
        Table.new(title: "A server that stalls #{Figures.number(lasting)} s in every #{Figures.number(every)} s", text: stall_text(every, lasting), heads: ["instrument", "as it was called"],
                  columns: columns, trials: [arithmetic(every, lasting), *measured("stall", server, target, instruments, @size.stall)], comparable: false,
                  plots: [Plot.new(name: "instruments-stall", title: "A server that stalls: the 99th percentile that each instrument tells", metric: :told, label: "p99", unit: "milliseconds", better: "less")])
      end

      def stall_times
        every = @size.stall_every
        [every, STALL_SECONDS * every / 10.0]
      end

      def stall_text(every, lasting)
        "`bench/apps/stall` on Firebrick. #{(100 * lasting / every).round} % of the users who come evenly meet a stall: the first row says what they must see. In a closed model a stall holds " \
          "#{STALL_CONNECTIONS} requests, however many users would have come meanwhile, and the rest of the time has many thousands: ab counts those that it sent, so its p99 does not see the stall. wrk " \
          "fills in afterwards what would have been asked meanwhile, an estimate. An open model asks on time and counts from then."
      end

      # The latency that evenly arriving users see: during a stall each waits for the rest of it.
      def arithmetic(every, lasting)
        share = lasting / every
        at = ->(part) { [1000 * lasting * (1 - ((1 - part) / share)), 0].max }
        Trial.new(name: "stall, arithmetic", cells: ["arithmetic", "users who come evenly"], seconds: 0, work: -> { { p50: at[0.5], p95: at[0.95], p99: at[0.99], told: at[0.99], longest: 1000 * lasting } })
      end
    end
  end
end
