-- Record that a worker still serves task types; their descriptions stay.
-- KEYS[1] types: hash: by task type the Unix second at which a worker last named it, a space, and its description
-- ARGV[1] now_seconds: Unix time; empty for Redis' clock
-- ARGV[2] now_microseconds: of the same second
-- ARGV[3] ttl: seconds after which a type is forgotten
-- ARGV[4...] type: for each name
-- Returns: the types that the hash does not hold
-- Uses: now

local types = KEYS[1]
local now_seconds, now_microseconds, ttl = unpack(ARGV, 1, 3)

local seconds = now(now_seconds, now_microseconds)
local missing = {}
for at = 4, #ARGV, 1 do
  local name = ARGV[at]
  local facts = string.match(redis.call('HGET', types, name) or '', '^%d+ (.*)$')
  if facts then
    redis.call('HSET', types, name, string.format('%d ', seconds) .. facts)
  else
    missing[#missing + 1] = name
  end
end
redis.call('EXPIRE', types, ttl)
return missing
