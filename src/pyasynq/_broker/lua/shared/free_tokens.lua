-- Token bucket: return how many tokens it holds, and the microsecond at which it is full. It gains one every
-- `interval` microseconds, up to `burst`; a missing bucket is full. At most a whole bucket is missing, even
-- after a change of the limits or a step back of Redis' clock.
local function free_tokens(bucket, interval, burst, time)
  if not interval then
    return math.huge, time
  end
  local capacity = burst * interval
  local full_at = tonumber(redis.call('HGET', bucket, 'full_at') or 0) or 0
  if full_at > time + capacity then
    full_at = time + capacity
    -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
    redis.call('HDEL', bucket, 'full_at')
    redis.call('HSET', bucket, 'full_at', full_at)
    redis.call('EXPIRE', bucket, math.ceil(capacity / 1000000) + 60)
  end
  full_at = math.max(time, full_at)
  -- The rounding of such large numbers may amount to half a microsecond.
  return math.floor((capacity - (full_at - time) + 0.5) / interval), full_at
end
