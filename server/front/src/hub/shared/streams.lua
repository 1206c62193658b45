
-- Numbers a message of a hub's stream and appends it to the log, or only looks at the head of the log.
--
-- ARGV: for a message also its stream, its payload, its id, and 1 if it may have been appended before.
if not ARGV[6] then
  return place()
end
if ARGV[9] == '1' then
  for _, entry in ipairs(redis.call('XREVRANGE', log, '+', '-', 'COUNT', '1000')) do
    if entry[2][8] == ARGV[8] then
      return { epoch, entry[2][4], lost, lost_at }
    end
  end
end
append(ARGV[6], ARGV[7], ARGV[8])
return place()
