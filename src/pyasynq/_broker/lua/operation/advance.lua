#!lua flags=allow-oom
-- Notes how far an operation is, if this process still owns it, and renews its lease.
-- KEYS[1] operation: hash
-- ARGV[1] fence: number under which the process owns it
-- ARGV[2] lease: seconds for which it owns the operation
-- ARGV[3] lifetime: seconds after its last step for which the operation is kept
-- ARGV[4] now_seconds: empty for the clock of Redis
-- ARGV[5] now_microseconds: within the second
-- ARGV[6] state: that it has reached; empty while it goes on
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
-- A full Redis 6.2 refuses a script whose first write may grow; removing may not.
redis.call('HDEL', operation, 'lease')
for at = 7, #ARGV, 2 do
  redis.call('HSET', operation, ARGV[at], ARGV[at + 1])
end
-- What ends an operation releases it; so does an operator who has paused or stopped it meanwhile.
if state ~= '' then
  redis.call('HSET', operation, 'state', state)
elseif current == 'running' then
  redis.call('HSET', operation, 'lease', seconds + lease)
end
redis.call('EXPIRE', operation, lifetime)
return state ~= '' and state or current
