-- Add `number` to a total and to the day's counter, whose expiry is set when it is created. The total starts
-- again when it would exceed a 64-bit integer, or if `restart` is set; return whether it did. `total` is the
-- value that `read_counts` returned.
local function count(total_key, day_key, total, number, day_end, restart)
  if redis.call('INCRBY', day_key, number) == number then
    redis.call('EXPIREAT', day_key, day_end)
  end
  total = tonumber(total or 0)
  if restart or not total or total + number >= 9223372036854775807 then
    redis.call('SET', total_key, number)
    return true
  end
  redis.call('INCRBY', total_key, number)
  return false
end
