#!lua flags=allow-oom
-- Set the expiry of a key that has none.
-- KEYS[1] source: any key
-- ARGV[1] seconds: from now
-- Returns: 1 if it was done

local source = KEYS[1]
local seconds = ARGV[1]

if redis.call('TTL', source) == -1 then
  return redis.call('EXPIRE', source, seconds)
end
return 0
