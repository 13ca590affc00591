#!lua flags=allow-oom
-- Store limits of a queue if the stored ones are still those that were read (compare-and-set).
-- KEYS[1] limits: hash of settings
-- ARGV[1] concurrency: as it was read; here and below, empty for none
-- ARGV[2] rate: as it was read
-- ARGV[3] period: as it was read
-- ARGV[4] burst: as it was read
-- ARGV[5] ordered: as it was read
-- ARGV[6...] field, value: for each setting to change; an empty value removes it
-- Returns: concurrency, rate, period, burst and ordered that are stored then, or nil if they had changed

local limits = KEYS[1]
local concurrency, rate, period, burst, ordered = unpack(ARGV, 1, 5)

local stored = redis.call('HMGET', limits, 'concurrency', 'rate', 'period', 'burst', 'ordered')
for at, expected in ipairs({concurrency, rate, period, burst, ordered}) do
  if (stored[at] or '') ~= expected then
    return nil
  end
end
for at = 6, #ARGV, 2 do
  local field, value = ARGV[at], ARGV[at + 1]
  -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
  redis.call('HDEL', limits, field)
  if value ~= '' then
    redis.call('HSET', limits, field, value)
  end
end
return redis.call('HMGET', limits, 'concurrency', 'rate', 'period', 'burst', 'ordered')
