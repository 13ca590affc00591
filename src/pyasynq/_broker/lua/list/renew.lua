#!lua flags=allow-oom
-- Replace the lease of an entry, unless it has ended meanwhile.
-- KEYS[1] leases: hash of the lease of each entry, by its token
-- ARGV[1] token: of the entry
-- ARGV[2] lease: of its attempt
-- Returns: 1, or 0 if the entry has ended

local leases = KEYS[1]
local token, lease = unpack(ARGV)

-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
if redis.call('HDEL', leases, token) == 0 then
  return 0
end
redis.call('HSET', leases, token, lease)
return 1
