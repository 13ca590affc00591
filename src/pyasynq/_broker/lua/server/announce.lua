#!lua flags=allow-oom
-- Set the time at which a record expires, and remove up to ten expired records from the index.
-- KEYS[1] index: sorted set of the keys of records by the second they lapse
-- ARGV[1] record: its key
-- ARGV[2] ttl: seconds for which it is valid
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- Returns: 1
-- Uses: now, ceiling

local index = KEYS[1]
local record, ttl, now_seconds, now_microseconds = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
local lapses = ceiling(seconds, microseconds) + ttl
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('ZREM', index, record)
local lapsed = redis.call('ZRANGE', index, '-inf', '(' .. seconds, 'BYSCORE', 'LIMIT', 0, 10)
if #lapsed > 0 then
  redis.call('ZREM', index, unpack(lapsed))
end
redis.call('ZADD', index, lapses, record)
return 1
