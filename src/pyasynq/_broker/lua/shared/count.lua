-- Add to a total, which starts again when it would leave the range of integers, and to the day's counter,
-- whose expiry is set when it is created. `total` is what `read_counts` returned. `restart` starts the total again in
-- any case; return whether it did.
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
