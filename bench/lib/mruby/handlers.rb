# frozen_string_literal: true

require_relative "../redis_server"
require_relative "../scenarios"
require_relative "../shootout/scenario"

module Bench
  module Mruby
    # Handlers inside the server, under wrk: the same Ruby code in Firebrick and in H2O, one thread each.
    #
    # One scenario, so that all servers take turns in the same rounds: the goals compare all of them.
    class Handlers < Shootout::Scenario
      called "mruby", "Handlers on mruby under wrk"
      CONNECTIONS = 64
      SHAPE = [1, 1].freeze
      HELLO = BODIES.fetch("hello")
      JSON_BODY = '{"foo":"bar"}'
      HEAD = "h2o head"
      NO_HEAD = "no H2O with Redis in it: Debian's has none; build H2O's head as its own manual says, and name it with H2O_HEAD=PATH"

      HELLO_HANDLER = Peers::HELLO_HANDLER

      # Unchanged from the example.
      JSON_HANDLER = File.read(File.join(Shootout::Setup::ROOT, "examples/mruby-json-redis/handler.rb"))

      # The same for H2O: its Redis client, whose replies are fetched with `join`.
      JSON_H2O = <<~RUBY
        class JsonApi
          def initialize
            @storage = H2O::Redis.new(host: "127.0.0.1", port: {redis})
            @storage.set("foo", "bar").join
          end

          def call(_env)
            body = JSON.generate({ foo: @storage.get("foo").join })
            [200, { "content-type" => "application/json", "content-length" => body.size }, [body]]
          end
        end

        JsonApi.new
      RUBY

      NGINX = %(server { listen 127.0.0.1:{port}; default_type text/plain; return 200 "#{HELLO}"; }\n).freeze

      def needs = %w[wrk redis-server]

      def tables
        [table("Hello", "The answer is #{HELLO.bytesize} bytes of text, from the same handler.", hello, HELLO),
         table("JSON from Redis", "`examples/mruby-json-redis/handler.rb`, and the same with `H2O::Redis`: one GET a request.", json, JSON_BODY)]
      end

      def goals
        [goal("hello: CPU per request, as a part of Debian's H2O's", :cpu_us, "hello: firebrick", "hello: h2o", at_most: 0.9),
         goal("JSON from Redis: CPU per request, as a part of H2O head's", :cpu_us, "json: firebrick", "json: #{HEAD}", at_most: 0.8),
         goal("JSON from Redis: requests/s, as a part of hello's", :rate, "json: firebrick", "hello: firebrick", at_least: 0.5)]
      end

      def versions
        @setup.h2o_head && Machine.there?(@setup.h2o_head) ? { HEAD => Shootout::Programs.version_line([@setup.h2o_head, "--version"]) } : {}
      end

      def around
        @redis = RedisServer.new(@setup.dir, cpu: (Shootout::Setup::LOAD_CPU if @setup.pinned?))
        yield
      ensure
        @redis&.stop
      end

      private

      def goal(text, metric, of, to, **limit) = Shootout::Goal.new(text: text, metric: metric, of: of, to: to, **limit)

      def wrk = Shootout::Generators::Wrk.new(connections: CONNECTIONS)

      def table(title, text, contestants, body)
        name = title == "Hello" ? "hello" : "json"
        ours = "#{name}: firebrick"
        relative = Shootout::Column.new(title: "CPU, firebrick = 1", metric: :cpu_us, to: ours)
        Shootout::Table.new(title: title, text: "#{text} `#{wrk.to_s { @size.timed }}`, connections kept.", heads: ["server"], columns: [RATE, CPU, relative, *TIMES, LONGEST, ERRORS, PSS, BUSY],
                            trials: contestants.map { |server, contestant| trial(name, server, contestant, Shootout::Stack::Expected.of(body)) })
      end

      # Redis's port is known only once it is running.
      def trial(name, server, contestant, expected)
        work = lambda do
          target = @setup.target(@setup.dir, SHAPE, expected, env: { "REDIS_URL" => @redis.url }, placeholders: { "redis" => @redis.port })
          @setup.measure(contestant.layers, target, wrk, @setup.generator(@size.timed)) { |stack| wrk.run(stack.url, @setup.generator(1)) }
        end
        Shootout::Trial.new(name: "#{name}: #{server}", cells: [server], needs: contestant.needs, seconds: @size.timed + 3, work: work, apart: server == "nginx",
                            configuration: Shootout::Contestants.written_down(contestant), absent: contestant.layers.empty? ? contestant.why : nil)
      end

      def hello
        { "firebrick" => firebrick(HELLO_HANDLER), "h2o" => one("h2o", Peers.h2o_mruby(HELLO_HANDLER), %w[h2o], "Debian's, with mruby 1.3"), HEAD => head(HELLO_HANDLER),
          "nginx" => one("nginx", Peers.nginx(NGINX), %w[nginx], "no Ruby: the same bytes from its configuration, for orientation") }
      end

      def json = { "firebrick" => firebrick(JSON_HANDLER), HEAD => head(JSON_H2O) }

      def firebrick(handler)
        command = Shootout::Contestants.firebrick_command(@setup, Peers::FIREBRICK_MRUBY)
        one("firebrick", Peer.new(command: command, config: { "handler.rb" => handler }), [], "one thread; no log, as with all others")
      end

      def head(handler)
        path = @setup.h2o_head
        return Shootout::Contestants::Contestant.new(layers: [], needs: [], why: NO_HEAD) unless path
        return Shootout::Contestants::Contestant.new(layers: [], needs: [], why: "H2O_HEAD is no program: #{NO_HEAD}") unless Machine.there?(path)

        one("h2o", Peers.h2o_mruby(handler, program: path), [], "H2O's newest, with mruby 3.1 and H2O::Redis")
      end

      def one(name, peer, needs, why) = Shootout::Contestants.one(name, peer, needs, why)
    end

    CHAPTER = Shootout::Chapter.new(
      name: "mruby handlers", title: "Handlers on mruby", command: "bench/mruby", single: true,
      about: "Ruby inside the server, beside H2O's, measured by [`bench/mruby`](../README.md#handlers-on-mruby).", scenarios: [Handlers].freeze
    )
  end
end
