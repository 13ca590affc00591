#!lua flags=allow-oom
-- Find the task of an attempt with a valid lease, or the attempt's verdict.
-- KEYS[1] task: the task's hash
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] verdicts: sorted set of the outcomes of leased attempts, by the second they are forgotten
-- ARGV[1] id: of the task
-- ARGV[2] token: of the attempt
-- ARGV[3] lease_end: second at which the lease was to end, as far as the attempt knows
-- ARGV[4] grace: seconds after the end of a lease before another worker takes the task
-- ARGV[5] now_seconds: empty for Redis' clock
-- ARGV[6] now_microseconds: within the second
-- ARGV[7...] verdict: each possible verdict
-- Returns: message, crashes, lease_score, seconds, microseconds; only a verdict if the attempt does not own the task any more; nothing without a verdict
-- Uses: now

local task, lease, verdicts = unpack(KEYS)
local id, token, lease_end, grace, now_seconds, now_microseconds = unpack(ARGV, 1, 6)

local seconds, microseconds = now(now_seconds, now_microseconds)
local fields = redis.call('HMGET', task, 'msg', 'x:attempt', 'state', 'x:crashes')
local score = redis.call('ZSCORE', lease, id)
-- After the grace period, a valid lease belongs to another worker that has taken the task since.
if fields[1] and fields[2] == token and fields[3] == 'active' and score
    and tonumber(score) > seconds and seconds <= lease_end + grace then
  return { fields[1], tonumber(fields[4] or 0) or 0, score, seconds, microseconds }
end
for at = 7, #ARGV, 1 do
  local forget_at = redis.call('ZSCORE', verdicts, token .. ' ' .. ARGV[at] .. ' ' .. id)
  if forget_at and tonumber(forget_at) > seconds then
    return { ARGV[at] }
  end
end
return {}
