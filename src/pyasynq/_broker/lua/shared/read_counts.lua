-- Read a total and the day's counter before anything is written; fail if one of them has the wrong type.
-- Return the total, and the value of the key `callbacks` if that key is given. MGET does not report wrong
-- types, so a missing counter is read again with GET; it is missing only once a day.
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
