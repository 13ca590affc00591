-- Read a total and the day's counter before anything is written. Return the total, or fail if one of them has the
-- wrong type. MGET does not report types, but a counter is missing only once a day. The second value returned says
-- whether the key `callbacks` exists, unless it is nil.
local function read_counts(total_key, day_key, callbacks)
  local values = callbacks and redis.call('MGET', total_key, day_key, callbacks)
    or redis.call('MGET', total_key, day_key)
  local today = values[2] or redis.call('GET', day_key)
  if today and not today:find('^%d+$') then
    -- Fails for what INCRBY cannot add to.
    redis.call('INCRBY', day_key, 0)
  end
  return values[1] or redis.call('GET', total_key), values[3]
end
