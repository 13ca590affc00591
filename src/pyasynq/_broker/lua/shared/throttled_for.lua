-- Return the whole milliseconds for which a host is still throttled; 0 if it may be called.
-- A time beyond the longest throttling is ignored: Redis' clock was set back.
local function throttled_for(gate, milliseconds, longest)
  local left = (tonumber(redis.call('HGET', gate, 'closed') or '') or 0) - milliseconds
  return left <= longest and math.max(0, math.ceil(left)) or 0
end
