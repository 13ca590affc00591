#!lua flags=allow-oom
-- Move tasks to `retry` until they are due, renew their locks, and count the failures among them.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] processed: number of attempts that ended
-- KEYS[5] processed_today: the same for this day
-- KEYS[6] failed: number of attempts that failed
-- KEYS[7] failed_today: the same for this day
-- KEYS[8] verdicts: sorted set of the verdict of leased attempts, by the second it is forgotten
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] day_end: second at which the day's counters expire
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6] verdict: the verdict of leased attempts; empty for the attempts of workers
-- ARGV[7] forget_at: second until which the verdict is kept
-- ARGV[8...] id, token, lease_score, message, retry_at, is_failure, trace, attempt, progress, unique_key: for each task; the last four and the message may be empty
-- Returns: the ids of tasks whose claims do not hold
-- Uses: now, read_counts, old_verdicts, take_claimed, write_outcome, prolong_lock, count, note_verdicts

local active, lease, retry, processed, processed_today, failed, failed_today, verdicts = unpack(KEYS)
local replay, task_prefix, day_end, now_seconds, now_microseconds, verdict, forget_at = unpack(ARGV, 1, 7)

local function store(held)
  local added = {}
  for _, at in ipairs(held) do
    added[#added + 1] = ARGV[at + 4]
    added[#added + 1] = ARGV[at]
  end
  return redis.pcall('ZADD', retry, unpack(added))
end

local processed_total, failed_total
for i = 13, #ARGV, 10 do
  if ARGV[i] == '1' then
    processed_total = read_counts(processed, processed_today)
    failed_total = read_counts(failed, failed_today)
    break
  end
end
local old = old_verdicts(verdicts, verdict, forget_at)
local held, refused = take_claimed(active, lease, task_prefix, replay, 'retry', store, nil, 8, 10)
local seconds = now(now_seconds, now_microseconds)
local failures = 0
for _, at in ipairs(held) do
  local id, _, _, message, retry_at, is_failure, trace, attempt, progress, unique_key = unpack(ARGV, at, at + 9)
  write_outcome(task_prefix .. id, 'retry', message, trace, attempt, progress)
  if unique_key ~= '' then
    prolong_lock(task_prefix .. id, id, unique_key, math.max(retry_at - seconds, 0), 0)
  end
  failures = failures + is_failure
end
if failures > 0 then
  local restarted = count(processed, processed_today, processed_total, failures, day_end)
  count(failed, failed_today, failed_total, failures, day_end, restarted)
end
if verdict ~= '' then
  note_verdicts(verdicts, verdict, forget_at, held, old)
end
return refused
