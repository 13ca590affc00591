-- Enqueue the task of a tick, unless this tick or a later one of its entry has been fired; a stored tick in the future is ignored.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- KEYS[8] ticks: hash of the last tick of each entry, and of `<entry>:paused`
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] group_prefix: prefix of group keys, before the name
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6] entry: id
-- ARGV[7] tick: Unix time
-- ARGV[8] slack: seconds by which a stored tick may be later than now and than the tick; a later one is ignored
-- ARGV[9] id: of the task
-- ARGV[10] message: of the task
-- ARGV[11] state: that the task begins with
-- ARGV[12] score: the second it is due
-- ARGV[13] group: that the task joins; empty for none
-- ARGV[14] lock: key of the task's lock, empty for none
-- ARGV[15] lock_ttl: seconds that the lock holds
-- ARGV[16] lock_rule: value of the field `x:unique_ttl`; empty if the hash does not name the lock
-- ARGV[17] on_duplicate: rule for the case that another task holds the lock
-- ARGV[18] on_conflict: rule for the case that a task has the id
-- ARGV[19] process_at: process time for a holder whose payload is replaced
-- ARGV[20] payload: payload for this holder
-- ARGV[21] finished: the task's completion callback; empty for none
-- ARGV[22] once_ttl: seconds for which a task with the id is enqueued at most once; empty for any number
-- Returns: a code, the last tick, and the holder of the lock (empty for none); the code is 1 if the task was enqueued, 3 if the holder got its payload, 0 if the id exists, -1 if the lock is held, -2 if the tick was fired before, -3 if the entry is paused, or -4 if a task with the id was enqueued within once_ttl
-- Uses: now, new_task, is_same_task, judge_task, place_task, replace_payload

local pending, scheduled, retry, archived, completed, groups, aggregation_sets, ticks = unpack(KEYS)
local replay, task_prefix, group_prefix, now_seconds, now_microseconds, entry, tick, slack, id, message, state,
  score, group, lock, lock_ttl, lock_rule, on_duplicate, on_conflict, process_at, payload, finished,
  once_ttl = unpack(ARGV)

local places = {
  pending = pending,
  scheduled = scheduled,
  retry = retry,
  archived = archived,
  completed = completed,
  groups = groups,
  aggregation_sets = aggregation_sets,
  task_prefix = task_prefix,
  group_prefix = group_prefix,
}
local new = new_task(id, message, state, score, group, lock, lock_ttl, lock_rule, on_duplicate, on_conflict,
  process_at, payload, finished, once_ttl)

local function leaves()
  return false
end

local seconds, microseconds = now(now_seconds, now_microseconds)
local last, paused = unpack(redis.call('HMGET', ticks, entry, entry .. ':paused'))
local last_tick = tonumber(last) or -1
-- A later last tick was written while the clock of Redis was wrong, and would silence the entry.
local latest = math.max(seconds, tonumber(tick)) + tonumber(slack)
if last_tick >= tonumber(tick) and last_tick <= latest then
  local ours = replay == '1' and last == tick and is_same_task(redis.call('HGET', task_prefix .. id, 'msg'), message)
  return { ours and 1 or -2, last, '' }
end
if paused then
  redis.call('HSET', ticks, entry, tick)
  return { -3, tick, '' }
end
local code, holder = judge_task(places, '0', new, leaves)
redis.call('HSET', ticks, entry, tick)
if code == 1 then
  place_task(places, new, seconds, microseconds)
elseif code == -1 and on_duplicate == 'replace_payload'
    and replace_payload(places, '0', new, holder, seconds) then
  code = 3
end
return { code, tick, holder or '' }
