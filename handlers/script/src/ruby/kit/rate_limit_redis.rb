# Rate limits that several machines share: the counting happens in Redis, atomically and by its clock.
class RateLimit
  # Each takes a key, then limit, period in microseconds, burst, cost; and returns [allowed, remaining, reset, retry], the last two in
  # microseconds. The same rules as in memory (`kit/rate.rs`).
  FIXED = <<~LUA
    local limit, period, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local begin = now - now % period
    local seen = redis.call('HMGET', KEYS[1], 'mark', 'now')
    local count = 0
    if tonumber(seen[1]) == begin then count = tonumber(seen[2]) end
    local allowed = count + cost <= limit
    if allowed then count = count + cost end
    redis.call('HSET', KEYS[1], 'mark', string.format('%.0f', begin), 'now', count)
    redis.call('PEXPIRE', KEYS[1], math.ceil(period / 1000) + 1000)
    local reset = begin + period - now
    return { allowed and 1 or 0, limit - count, reset, allowed and 0 or reset }
  LUA

  SLIDING = <<~LUA
    local limit, period, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local begin = now - now % period
    local seen = redis.call('HMGET', KEYS[1], 'mark', 'now', 'before')
    local mark, count, before = tonumber(seen[1]), tonumber(seen[2]) or 0, tonumber(seen[3]) or 0
    if mark ~= begin then
      before = (mark and mark + period == begin) and count or 0
      count = 0
    end
    local passed = now - begin
    local free = math.max(0, limit - math.ceil(before * (period - passed) / period) - count)
    local allowed = cost <= free
    local retry = 0
    if allowed then
      count = count + cost
      free = free - cost
    else
      local room = limit - cost
      if room >= count then
        retry = period - passed - math.floor((room - count) * period / before)
      else
        retry = period - passed + period - math.floor(room * period / count)
      end
    end
    redis.call('HSET', KEYS[1], 'mark', string.format('%.0f', begin), 'now', count, 'before', before)
    redis.call('PEXPIRE', KEYS[1], math.ceil(period / 500) + 1000)
    local reset = period - passed
    if count > 0 then reset = reset + period end
    return { allowed and 1 or 0, free, reset, retry }
  LUA

  BUCKET = <<~LUA
    local limit, period, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local token = period / limit
    local whole = token * burst
    local full = math.max(tonumber(redis.call('GET', KEYS[1])) or 0, now)
    local after = full + token * cost
    local allowed = after - now <= whole
    local retry = 0
    if allowed then
      full = after
      redis.call('SET', KEYS[1], string.format('%.3f', full), 'PX', math.ceil((full - now) / 1000) + 1000)
    else
      retry = math.ceil(after - now - whole)
    end
    local lacking = full - now
    return { allowed and 1 or 0, math.floor((whole - lacking) / token), math.ceil(lacking), retry }
  LUA

  SCRIPTS = { fixed_window: FIXED, sliding_window: SLIDING, token_bucket: BUCKET }.freeze

  private

  def shared(key, cost)
    # Not the whole path of the file, which may differ between machines.
    name = "ratelimit:#{@name.split('/').last}:#{@algorithm}:#{@period}:#{key}"
    arguments = [1, name, @limit, (@period * 1_000_000).ceil, @burst, cost]
    allowed, remaining, reset, retry_after = in_redis(arguments)
    [allowed == 1, remaining, reset / 1_000_000.0, retry_after / 1_000_000.0]
  rescue Unreachable => e
    raise e
  rescue StandardError => e
    raise Unreachable, "#{e.message} (#{e.class})"
  end

  # By the script's digest, which Redis knows until it restarts.
  def in_redis(arguments)
    @digest ||= answer(:SCRIPT, 'LOAD', SCRIPTS[@algorithm])
    answer(:EVALSHA, @digest, *arguments)
  rescue StandardError => e
    raise e unless e.message.start_with?('NOSCRIPT')
    answer(:EVAL, SCRIPTS[@algorithm], *arguments)
  end

  # H2O's commands return promises, redis-rb's return replies.
  def answer(*command)
    given = @redis.call(*command)
    given.respond_to?(:join) && !given.is_a?(Array) ? given.join : given
  end
end
