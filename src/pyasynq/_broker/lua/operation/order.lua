#!lua flags=allow-oom
-- Pauses, resumes or stops an operation.
-- KEYS[1] operation: hash
-- ARGV[1] state: that it is to have
-- ARGV[2] lifetime: seconds after its last step for which it is kept
-- ARGV[3...] before: a state in which this may be ordered
-- Returns: the state now, which is another one if this may not be ordered; empty if there is no such operation

local operation = KEYS[1]
local state, lifetime = unpack(ARGV, 1, 2)

local current = redis.call('HGET', operation, 'state') or ''
for at = 3, #ARGV, 1 do
  if ARGV[at] == current then
    -- A full Redis 6.2 refuses a script whose first write may grow; removing may not.
    redis.call('HDEL', operation, 'state')
    redis.call('HSET', operation, 'state', state)
    redis.call('EXPIRE', operation, lifetime)
    return state
  end
end
return current
