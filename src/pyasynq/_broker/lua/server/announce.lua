#!lua flags=allow-oom
-- Notes until when a record is to be believed.
-- KEYS[1] index: sorted set of the keys of records by the second they lapse
-- ARGV[1] record: its key
-- ARGV[2] ttl: how many seconds from now it is to be believed
-- ARGV[3] now_seconds: empty for the clock of Redis
-- ARGV[4] now_microseconds: within the second
-- Returns: 1
-- Uses: now, ceiling

local index = KEYS[1]
local record, ttl, now_seconds, now_microseconds = unpack(ARGV)

local lapses = ceiling(now(now_seconds, now_microseconds)) + ttl
-- A full Redis 6.2 refuses a script whose first write may grow; removing may not.
redis.call('ZREM', index, record)
redis.call('ZADD', index, lapses, record)
return 1
