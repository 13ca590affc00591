#!lua flags=allow-oom
-- List the records that have not expired, and remove the others from the index.
-- KEYS[1] index: sorted set of the keys of records by the second they lapse
-- ARGV[1] now_seconds: empty for Redis' clock
-- ARGV[2] now_microseconds: within the second
-- Returns: the keys of the records
-- Uses: now

local index = KEYS[1]
local now_seconds, now_microseconds = unpack(ARGV)

local seconds = now(now_seconds, now_microseconds)
redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. seconds)
return redis.call('ZRANGE', index, 0, -1)
