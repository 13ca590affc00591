-- Store an operation on many tasks, unless it exists.
-- KEYS[1] operation: hash
-- ARGV[1] lifetime: seconds after its last step for which it is kept
-- ARGV[2...] field, value: of the hash
-- Returns: 1, or 0 if it existed

local operation = KEYS[1]
local lifetime = unpack(ARGV, 1, 1)

if redis.call('EXISTS', operation) == 1 then
  return 0
end
for at = 2, #ARGV, 2 do
  redis.call('HSET', operation, ARGV[at], ARGV[at + 1])
end
redis.call('EXPIRE', operation, lifetime)
return 1
