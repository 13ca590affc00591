#!lua flags=allow-oom
-- Pause, resume or stop an operation.
-- KEYS[1] operation: hash
-- ARGV[1] state: new state
-- ARGV[2] lifetime: seconds after its last step for which it is kept
-- ARGV[3...] before: each state from which this change is allowed
-- Returns: the state after the call, unchanged if the change is not allowed; empty if there is no such operation

local operation = KEYS[1]
local state, lifetime = unpack(ARGV, 1, 2)

local current = redis.call('HGET', operation, 'state') or ''
for at = 3, #ARGV, 1 do
  if ARGV[at] == current then
    -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
    redis.call('HDEL', operation, 'state')
    redis.call('HSET', operation, 'state', state)
    redis.call('EXPIRE', operation, lifetime)
    return state
  end
end
return current
