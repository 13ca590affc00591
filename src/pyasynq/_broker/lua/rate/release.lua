#!lua flags=allow-oom
-- Take a token of a semaphore back.
-- KEYS[1] semaphore: sorted set of ids by the second until which they hold a token
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] id: of the task
-- ARGV[3] deadline: second at which the token expires; empty for any
-- Returns: 1, or 0 if the task holds no token with this deadline

local semaphore = KEYS[1]
local replay, id, deadline = unpack(ARGV)

local released = 0
if deadline == '' or tonumber(redis.call('ZSCORE', semaphore, id) or '') == tonumber(deadline) then
  released = redis.call('ZREM', semaphore, id)
end
return replay == '1' and 1 or released
