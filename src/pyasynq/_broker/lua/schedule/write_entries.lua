#!lua flags=allow-oom
-- Writes entries of a scheduler, behind those that are there already and are to be kept.
-- KEYS[1] scheduler: list of its entries, the first one at the right
-- ARGV[1] ttl: seconds after which it vanishes
-- ARGV[2] kept: how many entries of the list are to be kept
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
