RateLimit::ALGORITHMS.each do |algorithm|
  limit = RateLimit.new(limit: 3, period: 3_600, algorithm: algorithm)
  statuses = (1..4).map { limit.call(env)[0] }
  same [399, 399, 399, 429], statuses, algorithm
  same 399, limit.call(env('REMOTE_ADDR' => '192.0.2.2'))[0]
  status, headers, body = limit.call(env)
  same [429, ['Too Many Requests']], [status, body]
  same %w[3 0 3;w=3600], %w[ratelimit-limit ratelimit-remaining ratelimit-policy].map { |name| headers[name] }
  same true, (1..7_200).include?(headers['retry-after'].to_i), headers.inspect
  same true, (1..7_200).include?(headers['ratelimit-reset'].to_i), headers.inspect
end

def limiter(more = {})
  RateLimit.new(**{ limit: 2, period: 3_600 }.merge(more))
end

# The default name is the file and line; a given name is used everywhere.
one = limiter
2.times { one.allow?('x') }
same [false, true], [one.allow?('x'), one.allow?('y')]
same false, limiter.allow?('x'), 'made at the same place'
same true, RateLimit.new(limit: 2, period: 3_600).allow?('x'), 'made at another place'
named = RateLimit.new(limit: 1, period: 3_600, name: 'login')
same [true, false], [named.allow?('x'), RateLimit.new(limit: 1, period: 3_600, name: 'login').allow?('x')]

by_key = limiter(key: lambda { |env| env['HTTP_X_API_KEY'] }, name: 'keys')
same [399, {}, []], by_key.call(env)
same '1', by_key.call(env('HTTP_X_API_KEY' => 'k'))[1]['ratelimit-remaining']

bucket = limiter(burst: 5, name: 'bucket', cost: lambda { |env| env['PATH_INFO'] == '/dear' ? 3 : 1 })
same :token_bucket, bucket.algorithm
same [399, 429, 399, 399, 429], %w[/dear /dear / / /].map { |path| bucket.call(env('PATH_INFO' => path))[0] }

quick = limiter(period: 0.2, name: 'quick', algorithm: :fixed_window)
2.times { quick.check('x') }
result = quick.check('x')
unless result.allowed?
  sleep result.retry_after
  same true, quick.allow?('x'), 'after as long as was told'
end

asked = limiter(name: 'asked')
2.times { same false, asked.limited?('x') }
2.times { asked.check('x') }
same true, asked.limited?('x')

result = limiter(name: 'result').check('x')
same [true, 1, 2, 0.0], [result.allowed?, result.remaining, result.limit, result.retry_after]

raises(ArgumentError, 'algorithm: :leaky is none of') { limiter(algorithm: :leaky) }
raises(ArgumentError, 'limit: 0') { limiter(limit: 0) }
raises(ArgumentError, 'period: -1') { limiter(period: -1) }
raises(ArgumentError, 'burst: is for') { limiter(algorithm: :fixed_window, burst: 3) }
raises(ArgumentError, 'fail: :maybe') { limiter(fail: :maybe) }
raises(ArgumentError, 'cost 3 is more') { limiter.check('x', cost: 3) }

# Redis is down.
class Nobody
  def call(*)
    raise 'nobody listens'
  end
end
same 399, limiter(redis: Nobody.new).call(env)[0]
same 503, limiter(redis: Nobody.new, fail: :closed).call(env)[0]
raises(RateLimit::Unreachable, 'nobody listens') { limiter(redis: Nobody.new).check('x') }
