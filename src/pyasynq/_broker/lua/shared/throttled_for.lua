-- Return the whole milliseconds for which a host is still throttled; 0 if it may be called.
-- A time that is further away than any host may ask for counts for nothing: the clock of Redis was set back.
local function throttled_for(gate, milliseconds, longest)
  local left = (tonumber(redis.call('HGET', gate, 'closed') or '') or 0) - milliseconds
  return left <= longest and math.max(0, math.ceil(left)) or 0
end
