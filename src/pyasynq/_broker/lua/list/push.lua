-- Append an entry to a list of foreign workers, if one of them is free for it.
-- KEYS[1] entries: list that the workers take from
-- KEYS[2] workers: set of their names
-- KEYS[3] leases: hash of the lease of each entry, by its token
-- ARGV[1] token: of the entry
-- ARGV[2] entry: bytes, which begin with the token
-- ARGV[3] lease: of its attempt
-- ARGV[4] alive_prefix: of the heartbeat keys
-- ARGV[5] held_prefix: of the lists of entries that workers have taken
-- ARGV[6] ttl: seconds for which the keys are kept
-- Returns: 1, or 0 if no worker is free
-- Uses: count_slots

local entries, workers, leases = unpack(KEYS)
local token, entry, lease, alive_prefix, held_prefix, ttl = unpack(ARGV)

local _, slots, held = count_slots(workers, alive_prefix, held_prefix)
if slots - held - redis.call('LLEN', entries) < 1 or redis.call('HLEN', leases) >= 1000 then
  return 0
end
redis.call('HSET', leases, token, lease)
redis.call('RPUSH', entries, entry)
redis.call('EXPIRE', leases, ttl)
redis.call('EXPIRE', entries, ttl)
return 1
