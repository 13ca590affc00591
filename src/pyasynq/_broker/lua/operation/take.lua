#!lua flags=allow-oom
-- Makes a process the owner of an operation that runs and has none, or whose owner's lease is over.
-- KEYS[1] operation: hash
-- ARGV[1] owner: name of the process
-- ARGV[2] lease: seconds for which it owns the operation
-- ARGV[3] lifetime: seconds after its last step for which the operation is kept
-- ARGV[4] now_seconds: empty for the clock of Redis
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
-- A full Redis 6.2 refuses a script whose first write may grow; removing may not.
redis.call('HDEL', operation, 'owner')
local fence = redis.call('HINCRBY', operation, 'fence', 1)
redis.call('HSET', operation, 'owner', owner, 'lease', seconds + lease)
redis.call('EXPIRE', operation, lifetime)
return fence
