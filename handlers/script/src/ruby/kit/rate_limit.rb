# A limit of requests per time for each client: `RateLimit.new(limit: 100, period: 60)` as a handler responds 429 or
# passes the request on; `limit.check(key)` is for use from Ruby. All front threads count together; with
# `redis:` all machines do.
class RateLimit
  ALGORITHMS = %i[sliding_window fixed_window token_bucket].freeze

  # The result of a check.
  class Result
    # Requests that would be allowed now; seconds until the full limit is available; seconds until a retry can succeed.
    attr_reader :limit, :remaining, :reset, :retry_after

    def initialize(limit, allowed, remaining, reset, retry_after)
      @limit = limit
      @allowed = allowed
      @remaining = remaining
      @reset = reset
      @retry_after = retry_after
    end

    def allowed?
      @allowed
    end
  end

  # A condition, for `acl`.
  attr_reader :limit, :period, :burst, :algorithm, :name, :condition

  # limit::      requests allowed in period:: seconds
  # algorithm::  :sliding_window, :fixed_window (cheapest; up to twice the limit where two periods meet) or :token_bucket
  # burst::      for :token_bucket: requests at once after a pause (default: limit)
  # key::        what requests are counted by (default: the client's address); nil is not limited
  # cost::       how many requests one counts for (default: 1)
  # redis::      counts there, for several machines; fail:: when Redis fails: :open allows all requests, :closed responds 503
  # name::       limits of one name count together (default: the file and line where it is made)
  # message::    body of the 429 response
  def initialize(limit:, period:, algorithm: nil, burst: nil, key: nil, cost: 1, redis: nil, fail: :open, name: nil,
                 message: 'Too Many Requests', &condition)
    @condition = condition
    @algorithm = (algorithm || (burst ? :token_bucket : :sliding_window)).to_sym
    @limit = limit
    @period = period
    @burst = burst || limit
    judge(burst, fail)
    @key = key || lambda { |env| Rt.client(env) }
    @cost = cost
    @redis = redis
    @fail = fail
    @message = message
    @name = name || caller(1).find { |frame| !frame.start_with?('firebrick/') }.to_s.split(':in')[0]
    @prefix = "#{@name}\0#{@algorithm}\0#{limit}\0#{period}\0#{@burst}\0"
    @policy = "#{most};w=#{period.ceil}"
  end

  # Checks a key, and counts the request if it is allowed.
  def check(key, cost: 1)
    if cost > most
      raise ArgumentError, "cost #{cost} is more than is ever allowed (#{most})"
    end
    answer = @redis ? shared(key.to_s, cost) : Rt.call(Rt::RATE, @prefix + key.to_s, @algorithm, @limit, @period, @burst, cost)
    Result.new(most, *answer)
  end

  def allow?(key, cost: 1)
    check(key, cost: cost).allowed?
  end

  # Whether the next request would be refused; counts nothing.
  def limited?(key)
    check(key, cost: 0).remaining == 0
  end

  def call(env)
    key = @key.call(env)
    return [399, {}, []] if key.nil?
    begin
      result = check(key, cost: @cost.respond_to?(:call) ? @cost.call(env) : @cost)
    rescue Unreachable => e
      return unreachable(env, e)
    end
    return [399, headers(result), []] if result.allowed?
    [429, headers(result, 'retry-after' => seconds(result.retry_after), 'content-type' => 'text/plain'), [@message]]
  end

  # Redis failed.
  class Unreachable < StandardError; end

  private

  # The most that is ever allowed at once.
  def most
    @algorithm == :token_bucket ? @burst : @limit
  end

  def judge(burst, failing)
    unless ALGORITHMS.include?(@algorithm)
      raise ArgumentError, "algorithm: #{@algorithm.inspect} is none of #{ALGORITHMS.map { |known| known.inspect }.join(', ')}"
    end
    raise ArgumentError, "limit: #{@limit.inspect} is not an Integer from 1" unless @limit.is_a?(Integer) && @limit > 0
    unless (@period.is_a?(Integer) || @period.is_a?(Float)) && @period > 0
      raise ArgumentError, "period: #{@period.inspect} is not a number of seconds above 0"
    end
    raise ArgumentError, "burst: #{@burst.inspect} is not an Integer from 1" unless @burst.is_a?(Integer) && @burst > 0
    raise ArgumentError, "burst: is for the algorithm :token_bucket, not #{@algorithm.inspect}" if burst && @algorithm != :token_bucket
    raise ArgumentError, "fail: #{failing.inspect} is neither :open nor :closed" unless %i[open closed].include?(failing)
  end

  # Fields as in the IETF's draft.
  def headers(result, more = {})
    {
      'ratelimit-limit' => result.limit.to_s,
      'ratelimit-remaining' => result.remaining.to_s,
      'ratelimit-reset' => result.reset.ceil.to_s,
      'ratelimit-policy' => @policy
    }.merge(more)
  end

  def seconds(span)
    [span.ceil, 1].max.to_s
  end

  def unreachable(env, error)
    env['rack.errors'].puts("the rate limit #{@name} is #{@fail}: #{error.message}")
    return [399, {}, []] if @fail == :open
    [503, { 'content-type' => 'text/plain', 'retry-after' => '1' }, ['Service Unavailable']]
  end
end
