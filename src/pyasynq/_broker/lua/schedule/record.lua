#!lua flags=allow-oom
-- Adds an enqueue to the history of an entry, of which the newest 1,000 are kept.
-- KEYS[1] history: sorted set of events by the second they happened
-- ARGV[1] event: the new one
-- ARGV[2] score: the second it happened
-- ARGV[3] limit: how many are kept
-- ARGV[4] ttl: seconds after which the history vanishes
-- Returns: 1

local history = KEYS[1]
local event, score, limit, ttl = unpack(ARGV)

-- Sent again, this must not push out another one.
redis.call('ZREM', history, event)
redis.call('ZREMRANGEBYRANK', history, 0, -limit)
redis.call('ZADD', history, score, event)
redis.call('EXPIRE', history, ttl)
return 1
