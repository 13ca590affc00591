#!lua flags=allow-oom
-- Add an enqueue to an entry's history, and keep its newest 1,000.
-- KEYS[1] history: sorted set of events by the second they happened
-- ARGV[1] event: the new one
-- ARGV[2] score: the second it happened
-- ARGV[3] limit: number of enqueues to keep
-- ARGV[4] ttl: seconds after which the history expires
-- Returns: 1

local history = KEYS[1]
local event, score, limit, ttl = unpack(ARGV)

-- A resent call must not push out another one.
redis.call('ZREM', history, event)
redis.call('ZREMRANGEBYRANK', history, 0, -limit)
redis.call('ZADD', history, score, event)
redis.call('EXPIRE', history, ttl)
return 1
