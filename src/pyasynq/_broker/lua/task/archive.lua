#!lua flags=allow-oom
-- Archive tasks that failed for good, after making room for them, and count them.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] archived: sorted set of ids by the second they were archived
-- KEYS[4] processed: number of attempts that ended
-- KEYS[5] processed_today: the same for this day
-- KEYS[6] failed: number of attempts that failed
-- KEYS[7] failed_today: the same for this day
-- KEYS[8] verdicts: sorted set of the verdict of leased attempts, by the second it is forgotten
-- KEYS[9] callbacks: exists if tasks of the queue have callbacks
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] day_end: second at which the day's counters expire
-- ARGV[4] max_size: number of archived tasks to keep
-- ARGV[5] cutoff: tasks archived in this second or before are deleted
-- ARGV[6] verdict: the verdict of leased attempts; empty for the attempts of workers
-- ARGV[7] forget_at: second until which the verdict is kept
-- ARGV[8...] id, token, lease_score, message, archived_at, trace, attempt, progress: for each task; the last three and the message may be empty
-- Returns: trimmed, 1 if there is more to trim, the ids of tasks whose claims do not hold, then address and entry of each task with a callback
-- Uses: read_counts, old_verdicts, take_claimed, trim_archived, archive, count, note_verdicts, write_endings

local active, lease, archived, processed, processed_today, failed, failed_today, verdicts, callbacks =
  unpack(KEYS)
local replay, task_prefix, day_end, max_size, cutoff, verdict, forget_at = unpack(ARGV, 1, 7)

local processed_total, has_callbacks = read_counts(processed, processed_today, callbacks)
local failed_total = read_counts(failed, failed_today)
local old = old_verdicts(verdicts, verdict, forget_at)
local surplus = redis.call('ZCARD', archived) - max_size
local finished = has_callbacks and {} or nil
local held, refused =
  take_claimed(active, lease, task_prefix, replay, 'archived', nil, finished, 8, 8)
local trimmed, more = trim_archived(archived, task_prefix, surplus + #held, cutoff)
archive(archived, task_prefix, held)
if finished then
  write_endings(task_prefix, finished, held, 'archived', 1, 6, refused)
end
if #held > 0 then
  local restarted = count(processed, processed_today, processed_total, #held, day_end)
  count(failed, failed_today, failed_total, #held, day_end, restarted)
end
if verdict ~= '' then
  note_verdicts(verdicts, verdict, forget_at, held, old)
end
return { trimmed, more, unpack(refused) }
