# frozen_string_literal: true

require_relative "loads"
require_relative "peers"
require_relative "redis_server"
require_relative "server"

module Bench
  # Compares servers that are all up at once: short slices of load in turn, the order reversed each round.
  #
  # Why: machines drift by 10 to 20 % within a minute. Slices of one or two seconds put both servers into the same minute, and
  # a ratio within a round cancels what they share.
  class Interleaved
    # Median ratio, and the quartiles around it.
    Ratio = Struct.new(:median, :low, :high, :rounds, keyword_init: true)

    SERVER_CPU = 0
    LOAD_CPU = 1
    # Work that a server put off until after its last response is its work too.
    SETTLE_SECONDS = 0.05

    # commands: { name => command template }, two or more; the first is the one that ratios refer to.
    def initialize(scenario, commands, dir:, seconds:, rounds:)
      @scenario = scenario
      @commands = commands
      @dir = dir
      @setting = Loads::Setting.new(seconds: seconds, cpu: LOAD_CPU, dir: dir)
      @rounds = rounds
      @folder = scenario.folder(dir)
    end

    # { name => Ratio of CPU per request to the first server's }.
    def run
      redis = RedisServer.new(@dir, cpu: LOAD_CPU) if @scenario.redis
      servers = @commands.to_h { |name, command| [name, start(name, command, redis)] }
      servers.each_value { |server| @scenario.load.warm_up(url(server), @setting) }
      rounds = Array.new(@rounds) { |round| slices(round.even? ? servers : servers.to_a.reverse.to_h) }
      @commands.keys.drop(1).to_h { |name| [name, ratio(rounds, name)] }
    ensure
      servers&.each_value(&:stop)
      redis&.stop
    end

    private

    def start(name, command, redis)
      env = redis ? { "REDIS_URL" => redis.url } : {}
      home = File.join(@dir, "home-#{@scenario.name}-#{name}")
      server = Server.new(command, log: File.join(@dir, "#{name}.log"), cpu: SERVER_CPU, env: env, home: home)
      server.start(@folder, @scenario.shape) { |port| Net::HTTP.get_response("127.0.0.1", @scenario.path, port).code.to_i < 500 }
    end

    def url(server) = "http://127.0.0.1:#{server.port}#{@scenario.path}"

    # CPU seconds per request of each server, in one round.
    def slices(servers)
      servers.transform_values do |server|
        before = server.tree.cpu_seconds
        sample = @scenario.load.run(url(server), @setting)
        sleep SETTLE_SECONDS
        raise Failure, "#{sample.errors} requests failed" if sample.errors.positive?

        (server.tree.cpu_seconds - before) / sample.requests
      end
    end

    def ratio(rounds, name)
      base = @commands.keys.first
      ratios = rounds.map { |costs| costs.fetch(name) / costs.fetch(base) }.sort
      Ratio.new(median: quantile(ratios, 0.5), low: quantile(ratios, 0.25), high: quantile(ratios, 0.75), rounds: ratios.size)
    end

    def quantile(sorted, part)
      at = part * (sorted.size - 1)
      (sorted[at.floor] + sorted[at.ceil]) / 2
    end
  end
end
