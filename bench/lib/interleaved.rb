# frozen_string_literal: true

require_relative "check"
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

    # peers: { name => Peer or command template }, two or more.
    def initialize(scenario, peers, dir:, seconds:, rounds:)
      @scenario = scenario
      @peers = peers.transform_values { |peer| peer.is_a?(Peer) ? peer : Peer.new(command: peer) }
      @check = Check.of(scenario)
      @dir = dir
      @setting = Loads::Setting.new(seconds: seconds, cpu: LOAD_CPU, dir: dir)
      @rounds = rounds
      @folder = scenario.folder(dir)
    end

    # Measures; `ratio` and `cost` tell the figures.
    def run
      redis = RedisServer.new(@dir, cpu: LOAD_CPU) if @scenario.redis
      servers = @peers.to_h { |name, peer| [name, start(name, peer, redis)] }
      servers.each { |name, server| load_of(name).warm_up(url(server), @setting) }
      @costs = Array.new(@rounds) { |round| slices(round.even? ? servers : servers.to_a.reverse.to_h) }
      self
    ensure
      servers&.each_value(&:stop)
      redis&.stop
    end

    # CPU per request of one server in relation to another one's.
    def ratio(name, base)
      ratios = @costs.map { |costs| costs.fetch(name) / costs.fetch(base) }.sort
      Ratio.new(median: quantile(ratios, 0.5), low: quantile(ratios, 0.25), high: quantile(ratios, 0.75), rounds: ratios.size)
    end

    # CPU per request, microseconds: the median of the rounds.
    def cost(name) = quantile(@costs.map { |costs| costs.fetch(name) * 1_000_000 }.sort, 0.5)

    private

    def start(name, peer, redis)
      env = redis ? { "REDIS_URL" => redis.url } : {}
      home = File.join(@dir, "home-#{@scenario.name}-#{name}")
      server = Server.new(peer.command, log: File.join(@dir, "#{name}.log"), cpu: SERVER_CPU, env: env, home: home, config: peer.config)
      check = peer.curl ? Check.of(@scenario, curl: peer.curl) : @check
      server.start(@folder, @scenario.shape) { |port| check.call(port) }
    end

    def load_of(name) = @peers.fetch(name).load || @scenario.load

    def url(server) = @check.url(server.port)

    # CPU seconds per request of each server, in one round.
    def slices(servers)
      servers.to_h do |name, server|
        before = server.tree.cpu_seconds
        sample = load_of(name).run(url(server), @setting)
        sleep SETTLE_SECONDS
        raise Failure, "#{sample.errors} requests failed" if sample.errors.positive?
        raise Failure, "no request of the load got a response" if sample.requests.zero?

        [name, (server.tree.cpu_seconds - before) / sample.requests]
      end
    end

    def quantile(sorted, part)
      at = part * (sorted.size - 1)
      (sorted[at.floor] + sorted[at.ceil]) / 2
    end
  end
end
