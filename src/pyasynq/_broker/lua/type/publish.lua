-- Write descriptions, such as those of a worker's task types, and delete expired ones from a random sample.
-- KEYS[1] types: hash: by task type the Unix second at which a worker last named it, a space, and its description
-- ARGV[1] now_seconds: Unix time; empty for Redis' clock
-- ARGV[2] now_microseconds: of the same second
-- ARGV[3] ttl: seconds after which a type is forgotten
-- ARGV[4] most: largest number of types in the hash
-- ARGV[5] sample: number of random types to check for expiry
-- ARGV[6...] type, facts: for each type
-- Returns: the types for which there is no room
-- Uses: now

local types = KEYS[1]
local now_seconds, now_microseconds, ttl, most, sample = unpack(ARGV, 1, 5)

local seconds = now(now_seconds, now_microseconds)
for _, name in ipairs(redis.call('HRANDFIELD', types, sample)) do
  local seen = string.match(redis.call('HGET', types, name), '^%d+')
  if (tonumber(seen) or 0) < seconds - ttl then
    redis.call('HDEL', types, name)
  end
end
local refused = {}
local size = redis.call('HLEN', types)
for at = 6, #ARGV, 2 do
  local name, facts = ARGV[at], ARGV[at + 1]
  local is_new = redis.call('HEXISTS', types, name) == 0
  if is_new and size >= tonumber(most) then
    refused[#refused + 1] = name
  else
    redis.call('HSET', types, name, string.format('%d ', seconds) .. facts)
    size = is_new and size + 1 or size
  end
end
redis.call('EXPIRE', types, ttl)
return refused
