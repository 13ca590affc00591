#!lua flags=allow-oom
-- Store the progress of an operation and renew its lease, if this process still owns the operation.
-- KEYS[1] operation: hash
-- ARGV[1] fence: fencing number of the owner
-- ARGV[2] lease: seconds until the lease on the operation lapses
-- ARGV[3] lifetime: seconds after its last step for which the operation is kept
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6] state: final state that the operation has reached; empty while it runs
-- ARGV[7...] field, value: of the hash
-- Returns: the state, or `lost` if another process owns the operation
-- Uses: now

local operation = KEYS[1]
local fence, lease, lifetime, now_seconds, now_microseconds, state = unpack(ARGV, 1, 6)

local seconds = now(now_seconds, now_microseconds)
local own_fence, current = unpack(redis.call('HMGET', operation, 'fence', 'state'))
if own_fence ~= fence then
  return 'lost'
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('HDEL', operation, 'lease')
for at = 7, #ARGV, 2 do
  redis.call('HSET', operation, ARGV[at], ARGV[at + 1])
end
-- The lease is not renewed if the operation has ended, or if an operator has paused or stopped it.
if state ~= '' then
  redis.call('HSET', operation, 'state', state)
elseif current == 'running' then
  redis.call('HSET', operation, 'lease', seconds + lease)
end
redis.call('EXPIRE', operation, lifetime)
return state ~= '' and state or current
