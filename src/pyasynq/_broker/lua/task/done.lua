#!lua flags=allow-oom
-- Deletes finished tasks, releases the locks they own, and counts them.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] processed: number of attempts that ended
-- KEYS[4] processed_today: the same for this day
-- KEYS[5] verdicts: sorted set of what became of leased attempts, by the second it is forgotten
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: what stands before an id in the key of a task
-- ARGV[3] day_end: second at which the day's counters go
-- ARGV[4] verdict: what became of leased attempts; empty for the attempts of workers
-- ARGV[5] forget_at: second until which the verdict is kept
-- ARGV[6...] id, token, lease_score, unique_key: for each task; the key is empty for a task without a lock
-- Returns: the ids of tasks that the claims do not hold
-- Uses: read_counts, old_verdicts, take_claimed, count, owns_lock, note_verdicts

local active, lease, processed, processed_today, verdicts = unpack(KEYS)
local replay, task_prefix, day_end, verdict, forget_at = unpack(ARGV, 1, 5)

local total = read_counts(processed, processed_today)
local old = old_verdicts(verdicts, verdict, forget_at)
local held, refused, doomed = take_claimed(active, lease, task_prefix, replay, 'done', nil, 6, 4)
for _, at in ipairs(held) do
  local unique_key = ARGV[at + 3]
  if unique_key ~= '' and owns_lock(task_prefix .. ARGV[at], ARGV[at], unique_key) then
    doomed[#doomed + 1] = unique_key
  end
end
if #held > 0 then
  redis.call('DEL', unpack(doomed))
  count(processed, processed_today, total, #held, day_end)
end
if verdict ~= '' then
  note_verdicts(verdicts, verdict, forget_at, held, old)
end
return refused
