#!lua flags=allow-oom
-- Delete finished tasks, release the locks they own, and count them.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] processed: number of attempts that ended
-- KEYS[4] processed_today: the same for this day
-- KEYS[5] verdicts: sorted set of the verdict of leased attempts, by the second it is forgotten
-- KEYS[6] callbacks: exists if tasks of the queue have callbacks
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] day_end: second at which the day's counters expire
-- ARGV[4] verdict: the verdict of leased attempts; empty for the attempts of workers
-- ARGV[5] forget_at: second until which the verdict is kept
-- ARGV[6] outcome: of these tasks, for their callbacks
-- ARGV[7...] id, token, lease_score, unique_key: for each task; the key is empty for a task without a lock
-- Returns: the ids of tasks whose claims do not hold, then address and entry of each task with a callback
-- Uses: read_counts, old_verdicts, take_claimed, count, owns_lock, note_verdicts, write_endings

local active, lease, processed, processed_today, verdicts, callbacks = unpack(KEYS)
local replay, task_prefix, day_end, verdict, forget_at, outcome = unpack(ARGV, 1, 6)

local total, has_callbacks = read_counts(processed, processed_today, callbacks)
local old = old_verdicts(verdicts, verdict, forget_at)
local finished = has_callbacks and {} or nil
local held, refused, doomed =
  take_claimed(active, lease, task_prefix, replay, 'done', nil, finished, 7, 4)
if finished then
  write_endings(task_prefix, finished, held, outcome, 1, nil, refused)
end
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
