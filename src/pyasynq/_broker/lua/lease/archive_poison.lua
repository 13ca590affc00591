#!lua flags=allow-oom
-- Archive tasks with which too many workers died, make room for them first, and count them.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] archived: sorted set of ids by the second they were archived
-- KEYS[4] processed: number of attempts that ended
-- KEYS[5] processed_today: the same for this day
-- KEYS[6] failed: number of attempts that failed
-- KEYS[7] failed_today: the same for this day
-- KEYS[8] verdicts: sorted set of the outcomes of leased attempts, by the second they are forgotten
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] own_slack: grace period in seconds after the lease of a task with a token; empty if its worker is known to be dead
-- ARGV[3] foreign_slack: grace period in seconds for a task without a token
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6] day_end: second at which the day's counters expire
-- ARGV[7] max_size: number of archived tasks to keep
-- ARGV[8] cutoff: tasks archived in this second or before are deleted
-- ARGV[9...] id, token, lease_score, message, archived_at, trace, attempt, progress: for each task; all but id and time may be empty
-- Returns: trimmed, 1 if there is more to trim, the ids of tasks that have changed since they were seen, then address and entry of each task with a callback
-- Uses: now, read_counts, old_lost, take_expired, trim_archived, archive, count, note_lost, find_callbacks, write_endings

local active, lease, archived, processed, processed_today, failed, failed_today, verdicts = unpack(KEYS)
local task_prefix, own_slack, foreign_slack, now_seconds, now_microseconds, day_end, max_size, cutoff =
  unpack(ARGV, 1, 8)

local seconds = now(now_seconds, now_microseconds)
local processed_total = read_counts(processed, processed_today)
local failed_total = read_counts(failed, failed_today)
local old = old_lost(verdicts, seconds, 10, 8)
local surplus = redis.call('ZCARD', archived) - max_size
local finished = find_callbacks(task_prefix, 9, 8)
local held, refused = take_expired(active, lease, task_prefix, own_slack, foreign_slack, seconds, nil, 9, 8)
local trimmed, more = trim_archived(archived, task_prefix, surplus + #held, cutoff)
archive(archived, task_prefix, held)
write_endings(task_prefix, finished, held, 'archived', 1, 6, refused)
if #held > 0 then
  local restarted = count(processed, processed_today, processed_total, #held, day_end)
  count(failed, failed_today, failed_total, #held, day_end, restarted)
end
note_lost(verdicts, held, seconds, old)
return { trimmed, more, unpack(refused) }
