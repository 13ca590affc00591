#!lua flags=allow-oom
-- Append entries to the record of a scheduler, after the first `kept` ones; all others are removed.
-- KEYS[1] scheduler: list of its entries, the first one at the right
-- ARGV[1] ttl: seconds after which the list expires
-- ARGV[2] kept: number of entries of the list to keep
-- ARGV[3...] record: for each entry
-- Returns: 1

local scheduler = KEYS[1]
local ttl, kept = unpack(ARGV, 1, 2)

redis.call('LTRIM', scheduler, redis.call('LLEN', scheduler) - kept, -1)
for at = 3, #ARGV, 1 do
  redis.call('LPUSH', scheduler, ARGV[at])
end
redis.call('EXPIRE', scheduler, ttl)
return 1
