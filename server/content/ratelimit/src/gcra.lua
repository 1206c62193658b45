-- The generic cell rate algorithm. The key holds the time at which the limit will be unused again, in microseconds of Redis's clock.
-- ARGV: microseconds that one request takes up, and how many requests are admitted at once.
-- Returns 0 if the request is admitted, else the microseconds until one will be.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local unused = math.max(tonumber(redis.call('GET', KEYS[1])) or 0, now) + ARGV[1]
local wait = unused - now - ARGV[1] * ARGV[2]
if wait > 0 then
  return math.ceil(wait)
end
redis.call('SET', KEYS[1], string.format('%.3f', unused), 'PX', math.ceil((unused - now) / 1000) + 1)
return 0
