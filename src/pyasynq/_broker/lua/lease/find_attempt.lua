#!lua flags=allow-oom
-- Finds the task of an attempt whose lease is valid.
-- KEYS[1] task: the task's hash
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- ARGV[1] id: of the task
-- ARGV[2] token: of the attempt
-- ARGV[3] lease_end: second at which the lease was to end, as far as the attempt knows
-- ARGV[4] grace: how long after the end of a lease nobody else takes the task
-- ARGV[5] now_seconds: empty for the clock of Redis
-- ARGV[6] now_microseconds: within the second
-- Returns: message, crashes, lease_score, seconds, microseconds; nothing when the task is not the attempt's
-- Uses: now

local task, lease = unpack(KEYS)
local id, token, lease_end, grace, now_seconds, now_microseconds = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
local fields = redis.call('HMGET', task, 'msg', 'x:attempt', 'state', 'x:crashes')
local score = redis.call('ZSCORE', lease, id)
if not fields[1] or fields[2] ~= token or fields[3] ~= 'active' or not score then
  return {}
end
-- After the grace, a lease that is still valid was asked for by somebody who has taken the task since.
if tonumber(score) <= seconds or seconds > lease_end + grace then
  return {}
end
return { fields[1], tonumber(fields[4] or 0) or 0, score, seconds, microseconds }
