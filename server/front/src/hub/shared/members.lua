
-- Changes the members of streams as cable::presence does, and appends their events to the log. Each call also ends the sessions whose time
-- is over, of servers that have gone, too.
--
-- KEYS: also the sessions by the time at which they are over (a sorted set of "SESSION STREAM") and the bytes of all members.
-- ARGV: also the beginning of the names of further keys, the bounds (JSON: expiry and lease in milliseconds, members, bytes), and a list of
-- orders (JSON): join and renew (stream, id, info, session, is_vouched), leave and lose (stream, session), show (stream, and whether with
-- records).
-- Returns after the place an answer to each order: an empty text, the word of a refusal, or to show the number of members and their records.
local over, sum = KEYS[3], KEYS[4]
local bounds, orders = cjson.decode(ARGV[7]), cjson.decode(ARGV[8])
local STREAM, MEMBER, SESSION, MOST_LOST = 192, 128, 112, 16

-- The members of a stream (a hash: JSON by id) and their sessions (a hash: id by session).
local function keys(stream)
  return ARGV[6] .. 'members:' .. stream, ARGV[6] .. 'sessions:' .. stream
end

local function load(stream, id)
  local text = redis.call('HGET', keys(stream), id)
  return text and cjson.decode(text)
end

local function store(stream, id, member)
  redis.call('HSET', (keys(stream)), id, cjson.encode(member))
end

local function grow(bytes)
  redis.call('INCRBY', sum, bytes)
end

local function member_cost(id, info)
  return MEMBER + 2 * #id + #info
end

-- Forgets a session. Returns the id that it had, and the member without it.
local function forget(stream, session)
  local _, sessions = keys(stream)
  redis.call('ZREM', over, session .. ' ' .. stream)
  local id = redis.call('HGET', sessions, session)
  local member = id and load(stream, id)
  if not member then
    return
  end
  redis.call('HDEL', sessions, session)
  member.sessions[session] = nil
  grow(-SESSION)
  return id, member
end

local function leave(stream, session)
  local id, member = forget(stream, session)
  if not id then
    return
  end
  if next(member.sessions) then
    return store(stream, id, member)
  end
  local members = keys(stream)
  redis.call('HDEL', members, id)
  grow(-member_cost(id, member.info))
  if redis.call('EXISTS', members) == 0 then
    grow(-STREAM - #stream)
  end
  append(stream, '{"$presence":{"type":"leave","id":' .. cjson.encode(id) .. '}}', '')
end

-- Forgets the lost session of a member whose time is over first, if there are more than `most`. The member is not stored.
local function forget_lost(stream, member, most)
  local count, first, earliest = 0, nil, nil
  for session, is_lost in pairs(member.sessions) do
    if is_lost then
      count = count + 1
      local at = tonumber(redis.call('ZSCORE', over, session .. ' ' .. stream) or 0)
      if not first or at < earliest then
        first, earliest = session, at
      end
    end
  end
  if count > most then
    forget(stream, first)
    member.sessions[first] = nil
  end
end

-- Returns the word of the refusal; nil if the session may join.
local function refusal(order, own, member)
  if member and member.is_vouched and not order.is_vouched and own ~= order.id then
    return 'taken'
  end
  local more = own == order.id and 0 or SESSION
  if member then
    more = more + math.max(0, #order.info - #member.info)
  else
    local count = redis.call('HLEN', (keys(order.stream)))
    local left = own and load(order.stream, own)
    local frees = left and next(left.sessions, next(left.sessions)) == nil
    if count - (frees and 1 or 0) >= bounds.members then
      return 'full'
    end
    more = more + member_cost(order.id, order.info) + (count == 0 and STREAM + #order.stream or 0)
  end
  if more > 0 and tonumber(redis.call('GET', sum) or 0) + more > bounds.bytes then
    return 'memory'
  end
end

local function join(order)
  local stream, session = order.stream, order.session
  local members, sessions = keys(stream)
  local own, member = redis.call('HGET', sessions, session), load(stream, order.id)
  local why = refusal(order, own, member)
  if why then
    return why
  end
  if own and own ~= order.id then
    leave(stream, session)
  end
  if member then
    if order.is_vouched or not member.is_vouched then
      grow(#order.info - #member.info)
      member.info, member.is_vouched = order.info, order.is_vouched
    end
    if own ~= order.id then
      -- A client that has lost its connection comes with a session of its own.
      forget_lost(stream, member, 0)
      grow(SESSION)
    end
  else
    grow(member_cost(order.id, order.info) + SESSION + (redis.call('EXISTS', members) == 0 and STREAM + #stream or 0))
    member = { info = order.info, is_vouched = order.is_vouched, sessions = {} }
    append(stream, '{"$presence":{"type":"join","id":' .. cjson.encode(order.id) .. ',"info":' .. order.info .. '}}', '')
  end
  member.sessions[session] = false
  store(stream, order.id, member)
  redis.call('HSET', sessions, session, order.id)
  redis.call('ZADD', over, digits(now + bounds.lease), session .. ' ' .. stream)
  keep(over, sum, members, sessions)
end

-- Lets a session go on that its server still has.
local function renew(order)
  local members, sessions = keys(order.stream)
  if redis.call('HGET', sessions, order.session) ~= order.id then
    return join(order)
  end
  redis.call('ZADD', over, digits(now + bounds.lease), order.session .. ' ' .. order.stream)
  keep(over, sum, members, sessions)
end

local function lose(stream, session)
  if bounds.expiry == 0 then
    return leave(stream, session)
  end
  local _, sessions = keys(stream)
  local id = redis.call('HGET', sessions, session)
  local member = id and load(stream, id)
  if member then
    member.sessions[session] = true
    redis.call('ZADD', over, digits(now + bounds.expiry), session .. ' ' .. stream)
    forget_lost(stream, member, MOST_LOST)
    store(stream, id, member)
  end
end

local function show(order)
  local members = keys(order.stream)
  local answer = { digits(redis.call('HLEN', members)) }
  if order.records then
    local all = redis.call('HGETALL', members)
    for at = 1, #all, 2 do
      answer[#answer + 1] = all[at]
      answer[#answer + 1] = cjson.decode(all[at + 1]).info
    end
  end
  return answer
end

local function answer(order)
  if order.join then
    return join(order.join)
  elseif order.renew then
    return renew(order.renew)
  elseif order.leave then
    return leave(unpack(order.leave))
  elseif order.lose then
    return lose(unpack(order.lose))
  end
  return show(order.show)
end

for _, entry in ipairs(redis.call('ZRANGEBYSCORE', over, '-inf', digits(now), 'LIMIT', '0', '100')) do
  local session, stream = string.match(entry, '^(%d+) (.*)$')
  leave(stream, session)
end
if redis.call('EXISTS', over) == 0 then
  redis.call('DEL', sum)
end
local answers = {}
for at, order in ipairs(orders) do
  answers[at] = answer(order) or ''
end
local result = place()
for _, text in ipairs(answers) do
  result[#result + 1] = text
end
return result
