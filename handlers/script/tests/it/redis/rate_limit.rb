# The same checks on both stores: the scripts count like the server's memory.
redis = Redis.new(path: SOCKET)
seed = 7
dice = lambda { |most| seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648; seed / 65_536 % most }
%i[fixed_window sliding_window token_bucket].each do |algorithm|
  more = algorithm == :token_bucket ? { burst: 30 } : {}
  # Periods so long that none ends and no token is added during the test.
  ours = { limit: 20, period: 10_000_000, algorithm: algorithm, name: "same #{algorithm}" }.merge(more)
  memory = RateLimit.new(**ours)
  shared = RateLimit.new(**ours, redis: redis)
  promised = RateLimit.new(**ours, redis: H2O::Redis.new(path: SOCKET))
  60.times do |turn|
    key = "key#{dice.call(3)}"
    cost = dice.call(8)
    wanted = memory.check(key, cost: cost)
    # Both share their counts.
    found = (turn % 2 == 0 ? shared : promised).check(key, cost: cost)
    check [algorithm, turn, wanted.allowed?, wanted.remaining], [algorithm, turn, found.allowed?, found.remaining]
    check [true, wanted.retry_after > 0], [found.reset >= 0, found.retry_after > 0]
  end
  check memory.limited?('key0'), shared.limited?('key0')
  check false, shared.limited?('nobody')
end

# Tokens are added, and windows end.
{ fixed_window: 0.2, sliding_window: 0.2, token_bucket: 0.2 }.each do |algorithm, period|
  limit = RateLimit.new(limit: 2, period: period, algorithm: algorithm, name: "short #{algorithm}", redis: redis)
  allowed = (1..60).map { sleep 0.02; limit.allow?('me') }
  check [true, true], [allowed.include?(false), allowed.last(30).include?(true)]
end
# Unused keys expire.
check false, redis.keys('ratelimit:*').any? { |key| redis.pttl(key) == -1 }
# Redis has lost the script.
limit = RateLimit.new(limit: 2, period: 1000, name: 'forgotten', redis: redis)
check [true, true], [limit.allow?('me'), (redis.script(:flush); limit.allow?('me'))]
check false, limit.allow?('me')
# A key of another type is an error, handled by `fail:`.
redis.flushall
redis.set('ratelimit:forgotten:sliding_window:1000:me', 'text')
check true, fails(RateLimit::Unreachable) { limit.check('me') }.include?('WRONGTYPE')
