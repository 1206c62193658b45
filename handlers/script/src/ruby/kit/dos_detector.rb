# Bans clients that send too many requests: H2O's detector, but all front threads count together.
class DoSDetector
  # The default callback: 403 while the client is banned.
  def self.default_callback
    lambda do |_env, detected, _ip, *|
      detected ? [403, { 'content-type' => 'text/plain' }, ['Forbidden']] : [399, {}, []]
    end
  end

  # Passes all requests on; the next handlers find `DOS_IP`, `DOS_COUNT` and `DOS_BANNED_UNTIL` in the env.
  def self.fallthrough_callback
    lambda do |_env, detected, ip, *found|
      return [399, {}, []] unless detected
      facts = { ip: ip }.merge(found[0] || {})
      headers = {}
      facts.each { |name, value| headers["x-fallthru-set-dos-#{name.to_s.tr('_', '-')}"] = value.to_s }
      [399, headers, []]
    end
  end

  # A condition, for `acl`.
  attr_reader :condition

  # strategy::    the detector: `detect?(client, now, env)` returns whether to ban, and more values for the callback
  # callback::    makes the response: called with env, whether to ban, the client's address, and the strategy's other values
  # forwarded::   use X-Forwarded-For if it comes from a private address
  # cache_size::  number of clients, per front thread, whose Hash is kept for a strategy of your own
  def initialize(options = {}, &condition)
    @condition = condition
    @strategy = options.fetch(:strategy) { CountingStrategy.new }
    @callback = options.fetch(:callback) { self.class.default_callback }
    raise ArgumentError, 'strategy must not be nil' if @strategy.nil?
    raise ArgumentError, 'callback must not be nil' if @callback.nil?
    @forwarded = options.fetch(:forwarded, true)
    @clients = LRUCache.new(options.fetch(:cache_size, 128))
  end

  def call(env)
    ip = Rt.client(env, @forwarded)
    client = @clients.fetch(ip) { { ip: ip } }
    detected, *found = @strategy.detect?(client, Time.now.to_i, env)
    @callback.call(env, detected, ip, *found)
  end

  # Bans a client that sends `threshold` times more requests than one per `period` (seconds), for `ban_period`.
  class CountingStrategy
    def initialize(options = {})
      @period = options.fetch(:period, 10)
      @threshold = options.fetch(:threshold, 100)
      @ban_period = options.fetch(:ban_period, 300)
      raise ArgumentError, 'period must be greater than zero' if @period <= 0
      raise ArgumentError, 'threshold must be greater than zero' if @threshold <= 0
      raise ArgumentError, 'ban_period must not be negative' if @ban_period < 0
      @name = "#{options[:name]}\0#{@period}\0#{@threshold}\0#{@ban_period}\0"
    end

    def detect?(client, _now, _env)
      banned, count, banned_until = Rt.call(Rt::VISIT, "#{@name}#{client[:ip]}", @period, @threshold, @ban_period)
      [banned, { count: count, banned_until: banned_until }]
    end
  end
end
