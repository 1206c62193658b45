-- The log of all messages: its head, and how a message gets its number. Other scripts follow this text.
--
-- KEYS: the head (a hash: epoch, offset of the last message, bytes of the log, when its oldest message is due to be dropped, and offset and
-- time of the newest message that was dropped) and the log (a stream).
-- ARGV: the time of the history in milliseconds, the most bytes of the log, a name for a new epoch, the caller's epoch and the largest
-- offset that it knows.
local head, log = KEYS[1], KEYS[2]
local history, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

local function cost(fields)
  local bytes = 128
  for _, text in ipairs(fields) do
    bytes = bytes + #text
  end
  return bytes
end

local known = redis.call('HMGET', head, 'epoch', 'offset', 'lost', 'lost_at')
local epoch, offset, lost, lost_at = known[1], tonumber(known[2]), known[3], known[4]
-- A caller that knows more of the same epoch has talked to a server whose last messages were lost, for example before a failover. Offsets of
-- a new epoch begin with the time in microseconds, so they are larger than all before, and exact in a double and in JavaScript.
if not epoch or (epoch == ARGV[4] and offset < tonumber(ARGV[5])) then
  redis.call('DEL', head, log)
  epoch, offset = ARGV[3], clock[1] * 1000000 + clock[2]
  lost, lost_at = digits(offset), digits(now)
  redis.call('HSET', head, 'epoch', epoch, 'offset', digits(offset), 'lost', lost, 'lost_at', lost_at, 'bytes', '0', 'due', digits(now + history))
end

-- The beginning of each reply: epoch, offset, and offset and time of the newest message that was dropped.
local function place()
  return { epoch, digits(offset), lost, lost_at }
end

-- A group that is no longer used leaves nothing behind.
local function keep(...)
  for _, key in ipairs({ ... }) do
    redis.call('PEXPIRE', key, digits(history + 86400000))
  end
end

local function append(stream, payload, id)
  offset = redis.call('HINCRBY', head, 'offset', 1)
  local fields = { 'stream', stream, 'offset', digits(offset), 'epoch', epoch, 'id', id, 'payload', payload }
  redis.call('XADD', log, '*', unpack(fields))
  local bytes = redis.call('HINCRBY', head, 'bytes', cost(fields))
  local due = tonumber(redis.call('HGET', head, 'due'))
  while bytes > most or due <= now do
    local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', '1')[1]
    if not oldest then
      due = now + history
      break
    end
    due = tonumber(string.match(oldest[1], '^%d+')) + history
    if bytes <= most and due > now then
      break
    end
    redis.call('XDEL', log, oldest[1])
    bytes = bytes - cost(oldest[2])
    lost, lost_at = oldest[2][4], string.match(oldest[1], '^%d+')
  end
  redis.call('HSET', head, 'bytes', digits(bytes), 'due', digits(due), 'lost', lost, 'lost_at', lost_at)
  keep(head, log)
end
