# frozen_string_literal: true

require_relative "../../redis_server"
require_relative "../../scenarios"
require_relative "../scenario"

module Bench
  module Shootout
    # A JSON API backed by Redis, under wrk.
    class JsonApi < Scenario
      called "json-api", "A JSON API with Redis under wrk"
      CONNECTIONS = 64
      SHAPE = [1, 5].freeze
      BODY = BODIES.fetch("redis")
      YJIT = { "RUBYOPT" => "--yjit" }.freeze
      WITHOUT = "h2o, mruby, no Redis"

      CONSTANT = <<~RUBY.freeze
        Proc.new do |env|
          [200, {"content-type" => "application/json"}, ['#{BODY}']]
        end
      RUBY

      def needs = %w[wrk redis-server ruby]

      def tables
        columns = [RATE, CPU, TO_FIREBRICK, *TIMES, LONGEST, ERRORS, PSS, BUSY]
        [Table.new(title: "", text: text, heads: ["server"], columns: columns, trials: servers, plots: plots)]
      end

      def around
        @redis = RedisServer.new(@setup.dir, cpu: (Setup::LOAD_CPU if @setup.pinned?))
        yield
      ensure
        @redis&.stop
      end

      private

      def text
        "JSON from one Redis GET (ruby-redis, a connection per thread), `#{wrk.to_s { @size.timed }}`. One process of #{SHAPE[1]} threads, Puma's default. wrk's percentiles fill in what would have come while it waited for answers. Redis runs beside the load " \
          "generator and is not counted. Debian's H2O has mruby but no Redis in it (that came with H2O 2.3): its row answers the same bytes without asking anybody, so it is an upper " \
          "bound and no competitor. “yjit”: `RUBYOPT=--yjit`."
      end

      def wrk = Generators::Wrk.new(connections: CONNECTIONS)

      def servers
        rows(contestants, nil, wrk, seconds: @size.timed, lasting: @size.timed + 3, warm_up: wrk)
      end

      # Redis's address is known only once it is running.
      def rows(contestants, _place, generator, seconds:, lasting:, warm_up:)
        contestants.map do |name, contestant|
          work = lambda do
            target = @setup.target(@setup.app("redis"), SHAPE, Stack::Expected.of(BODY), env: { "REDIS_URL" => @redis.url })
            @setup.measure(contestant.layers, target, generator, @setup.generator(seconds)) { |stack| warm_up.run(stack.url, @setup.generator(1)) }
          end
          Trial.new(name: name, cells: [name], needs: contestant.needs, configuration: Contestants.written_down(contestant), seconds: lasting, work: work,
                    apart: name == WITHOUT, absent: contestant.layers.empty? ? contestant.why : nil)
        end
      end

      def contestants
        bare = Contestants.bare(@setup).slice("firebrick", "puma")
        with_redis = bare.transform_values { |one| Contestants::Contestant.new(layers: one.layers, needs: [*one.needs, "ruby-redis"].uniq, why: one.why) }
        with_yjit = with_redis.to_h { |name, one| ["#{name}, yjit", yjit(one)] }
        { **with_redis, **with_yjit, "iodine" => iodine,
                                     WITHOUT => Contestants.one("h2o", Peers.h2o_mruby(CONSTANT), %w[h2o], "the same bytes from a constant; asks no Redis") }
      end

      def yjit(contestant)
        layers = contestant.layers.map { |layer| Stack::Layer.new(name: layer.name, peer: layer.peer, env: YJIT) }
        Contestants::Contestant.new(layers: layers, needs: contestant.needs, why: "#{contestant.why}; compiled by YJIT, which takes memory")
      end

      def iodine
        absent = "not in Debian and not found: `gem install iodine`, or IODINE=COMMAND"
        return Contestants::Contestant.new(layers: [], needs: [], why: absent) unless @setup.iodine

        peer = Peer.new(command: "#{@setup.iodine} -p {port} -t {threads} -w {workers}")
        Contestants.one("iodine", peer, %w[ruby-redis], "as its manual says: -t, -w; no log")
      end

      def plots
        [bars("json-api-rate", "A JSON API with Redis: requests per second", :rate, "requests", "more"),
         bars("json-api-cpu", "A JSON API with Redis: CPU per request", :cpu_us, "CPU time of the server per request", "less", unit: { "named" => "µs" })]
      end
    end
  end
end
