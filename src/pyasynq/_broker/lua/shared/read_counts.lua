-- Reads a total and the day's counter before anything is written. Returns the total, or fails if one of them is of
-- the wrong type. MGET tells nothing of types, but a counter is missing only once a day.
local function read_counts(total_key, day_key)
  local values = redis.call('MGET', total_key, day_key)
  local today = values[2] or redis.call('GET', day_key)
  if today and not today:find('^%d+$') then
    -- Fails for what INCRBY cannot add to.
    redis.call('INCRBY', day_key, 0)
  end
  return values[1] or redis.call('GET', total_key)
end
