# frozen_string_literal: true

require_relative "../server"

module Bench
  module Choose
    # The ways to serve the app: the same behaviour, different commands.
    class Ways
      APP = File.expand_path("../../apps/choose", __dir__)
      SERVE = "{firebrick} serve -p {port} --control off --front-threads 1 -q"
      NAMES = %w[processes threads fibers mruby].freeze

      # seats: the number of requests that threads and fibers serve at a time.
      def initialize(firebrick, processes:, seats:, rounds:)
        @firebrick = firebrick
        @processes = processes
        @seats = seats
        @rounds = rounds
      end

      # Its title in the table.
      def title(name)
        { "processes" => "#{@processes} processes", "threads" => "1 process, #{@seats} threads",
          "fibers" => "1 process, #{@seats} fibers", "mruby" => "handler on mruby, 1 thread" }.fetch(name)
      end

      # Returns a server that has not been started yet.
      def server(name, dir, redis)
        app = name == "mruby" ? "{home}/handler.rb --mruby" : APP
        config = name == "mruby" ? { "handler.rb" => File.read("#{APP}/handler.rb") } : {}
        Server.new("#{command(name)} #{app}", log: File.join(dir, "#{name}.log"), home: File.join(dir, name),
                                              env: { "REDIS_URL" => redis.url, "CHOOSE_ROUNDS" => @rounds.to_s },
                                              config: config, values: values(redis))
      end

      private

      def command(name)
        shape = { "processes" => "--workers #{@processes} --threads 1:1", "threads" => "--workers 1 --threads #{@seats}:#{@seats}",
                  "fibers" => "--workers 1 --threads 1:1 --fibers #{@seats}", "mruby" => "" }
        "#{SERVE} #{shape.fetch(name)}"
      end

      def values(redis)
        { "firebrick" => @firebrick, "redis" => redis.port, "rounds" => @rounds }
      end
    end
  end
end
