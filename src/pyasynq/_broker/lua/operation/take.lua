#!lua flags=allow-oom
-- Make a process the owner of a running operation that has no owner, or whose owner's lease has expired.
-- KEYS[1] operation: hash
-- ARGV[1] owner: name of the process
-- ARGV[2] lease: seconds until the lease on the operation lapses
-- ARGV[3] lifetime: seconds after its last step for which the operation is kept
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- Returns: the fencing number of this owner, or 0 if it does not own the operation
-- Uses: now

local operation = KEYS[1]
local owner, lease, lifetime, now_seconds, now_microseconds = unpack(ARGV)

local state, other, until_when = unpack(redis.call('HMGET', operation, 'state', 'owner', 'lease'))
local seconds = now(now_seconds, now_microseconds)
if state ~= 'running' or (other and other ~= owner and tonumber(until_when or 0) > seconds) then
  return 0
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('HDEL', operation, 'owner')
local fence = redis.call('HINCRBY', operation, 'fence', 1)
redis.call('HSET', operation, 'owner', owner, 'lease', seconds + lease)
redis.call('EXPIRE', operation, lifetime)
return fence
