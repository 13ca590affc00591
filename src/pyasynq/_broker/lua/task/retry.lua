#!lua flags=allow-oom
-- Sets tasks aside until they are to be tried again, and counts the failures among them.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] processed: number of attempts that ended
-- KEYS[5] processed_today: the same for this day
-- KEYS[6] failed: number of attempts that failed
-- KEYS[7] failed_today: the same for this day
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: what stands before an id in the key of a task
-- ARGV[3] day_end: second at which the day's counters go
-- ARGV[4...] id, token, lease_score, message, retry_at, is_failure, trace: for each task
-- Returns: the ids of tasks that the claims do not hold
-- Uses: take_claimed, count

local active, lease, retry, processed, processed_today, failed, failed_today = unpack(KEYS)
local replay, task_prefix, day_end = unpack(ARGV, 1, 3)

local held, refused = take_claimed(active, lease, task_prefix, replay, 'retry', 4, 7)
local added, failures = {}, 0
for _, at in ipairs(held) do
  local id, _, _, message, retry_at, is_failure, trace = unpack(ARGV, at, at + 6)
  local task = task_prefix .. id
  redis.call('HDEL', task, 'x:attempt', 'x:crashes', 'x:trace')
  redis.call('HSET', task, 'msg', message, 'state', 'retry')
  if trace ~= '' then
    redis.call('HSET', task, 'x:trace', trace)
  end
  failures = failures + is_failure
  added[#added + 1] = retry_at
  added[#added + 1] = id
end
if #held > 0 then
  redis.call('ZADD', retry, unpack(added))
end
if failures > 0 then
  local restarted = count(processed, processed_today, failures, day_end)
  count(failed, failed_today, failures, day_end, restarted)
end
return refused
