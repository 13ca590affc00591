#!lua flags=allow-oom
-- Set a stored tick that is in the future to the present, unless it has changed since it was found.
-- KEYS[1] ticks: hash of the last tick of each entry, and of `<entry>:since`
-- ARGV[1] field: of the hash
-- ARGV[2] value: value that was found
-- ARGV[3] now_seconds: Unix time
-- Returns: 1 if it was done

local ticks = KEYS[1]
local field, value, now_seconds = unpack(ARGV)

if redis.call('HGET', ticks, field) ~= value then
  return 0
end
-- Without flags, a full Redis accepts HSET only after a write that frees memory.
redis.call('HDEL', ticks, field)
redis.call('HSET', ticks, field, now_seconds)
return 1
