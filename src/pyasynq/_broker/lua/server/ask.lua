#!lua flags=allow-oom
-- Store a request to a server, in place of an earlier one.
-- KEYS[1] request: hash of the action and the number of the request
-- ARGV[1] action: requested action
-- ARGV[2] ttl: seconds after which the request expires
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- Returns: the number of the request
-- Uses: now

local request = KEYS[1]
local action, ttl, now_seconds, now_microseconds = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
local number = string.format('%d.%06d', seconds, microseconds)
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('DEL', request)
redis.call('HSET', request, 'action', action, 'number', number)
redis.call('EXPIRE', request, ttl)
return number
