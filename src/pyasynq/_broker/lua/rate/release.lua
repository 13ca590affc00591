#!lua flags=allow-oom
-- Takes a token of a semaphore back.
-- KEYS[1] semaphore: sorted set of ids by the second until which they hold a token
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] id: of the task
-- Returns: 1, or 0 if the task held none

local semaphore = KEYS[1]
local replay, id = unpack(ARGV)

local released = redis.call('ZREM', semaphore, id)
return replay == '1' and 1 or released
