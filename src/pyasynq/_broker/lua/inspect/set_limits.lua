#!lua flags=allow-oom
-- Store limits of a queue, or remove them.
-- KEYS[1] limits: hash of settings
-- ARGV[1...] field, value: for each setting; an empty value removes it
-- Returns: the concurrency, rate, period, burst and ordered (1 or 0) that are stored after the call

local limits = KEYS[1]

for at = 1, #ARGV, 2 do
  local field, value = ARGV[at], ARGV[at + 1]
  -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
  redis.call('HDEL', limits, field)
  if value ~= '' then
    redis.call('HSET', limits, field, value)
  end
end
return redis.call('HMGET', limits, 'concurrency', 'rate', 'period', 'burst', 'ordered')
