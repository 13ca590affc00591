#!lua flags=allow-oom
-- Throttle a host: no request to it begins for `pause` milliseconds, unless it is throttled for longer already.
-- KEYS[1] gate: hash of the microsecond at which all tokens are there again, and of the millisecond until which the host is throttled
-- ARGV[1] now_seconds: empty for Redis' clock
-- ARGV[2] now_microseconds: within the second
-- ARGV[3] pause: milliseconds until the host may be called
-- ARGV[4] longest: milliseconds for which a host may be throttled
-- Returns: milliseconds until the host may be called
-- Uses: now, throttled_for

local gate = KEYS[1]
local now_seconds, now_microseconds, pause, longest = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
local milliseconds = math.floor(seconds * 1000 + microseconds / 1000)
pause = math.max(tonumber(pause), throttled_for(gate, milliseconds, tonumber(longest)))
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('HDEL', gate, 'closed')
redis.call('HSET', gate, 'closed', milliseconds + pause)
-- The minute allows for Redis' clock being set back. The bucket may have to stay for longer.
redis.call('PEXPIRE', gate, math.max(redis.call('PTTL', gate), pause + 60000))
return pause
