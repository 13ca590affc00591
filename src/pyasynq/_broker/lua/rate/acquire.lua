#!lua flags=allow-oom
-- Give a token of a semaphore to a task, if one is free.
-- KEYS[1] semaphore: sorted set of ids by the second until which they hold a token
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] max_tokens: number of tokens
-- ARGV[3] id: of the task
-- ARGV[4] deadline: second at which the token expires
-- ARGV[5] now_seconds: empty for Redis' clock
-- ARGV[6] now_microseconds: within the second
-- Returns: 1, or 0 if none is free
-- Uses: now

local semaphore = KEYS[1]
local replay, max_tokens, id, deadline, now_seconds, now_microseconds = unpack(ARGV)

local seconds = now(now_seconds, now_microseconds)
redis.call('ZREMRANGEBYSCORE', semaphore, '-inf', seconds - 1)
if redis.call('ZCARD', semaphore) < tonumber(max_tokens) then
  redis.call('ZADD', semaphore, deadline, id)
  return 1
end
return replay == '1' and redis.call('ZSCORE', semaphore, id) == deadline and 1 or 0
