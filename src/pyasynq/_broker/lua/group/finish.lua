#!lua flags=allow-oom
-- Put the aggregate task into its place, and delete the aggregation set with its members.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- KEYS[8] set: sorted set of ids by the second they joined the group
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] group_prefix: prefix of group keys, before the name
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6] own_id: 1 if the new task has the set's id, so that only this set can have made a task with it
-- ARGV[7] id: of the new task
-- ARGV[8] message: of the new task
-- ARGV[9] state: of the new task
-- ARGV[10] score: second at which a scheduled task is due
-- ARGV[11] group: that the new task joins; empty for none
-- ARGV[12] lock: key of the new task's lock; empty for none
-- ARGV[13] lock_ttl: seconds that the lock holds
-- ARGV[14] lock_rule: value of the field `x:unique_ttl`; empty if the hash does not name the lock
-- ARGV[15] on_duplicate: rule for the case that another task holds the lock
-- ARGV[16] on_conflict: rule for the case that a task has the id
-- ARGV[17] process_at: process time for a holder whose payload is replaced
-- ARGV[18] payload: payload for this holder
-- ARGV[19] finished: the task's completion callback; empty for none
-- ARGV[20] once_ttl: seconds for which a task with the id is enqueued at most once; empty for any number
-- ARGV[21...] member, unique_key: for each member that may own a lock
-- Returns: 1 if the new task was stored; 2 if it was stored before; 3 if another task takes its place by a rule; and with nothing changed, 0 if the new id exists, -1 if the lock is held, or -2 if the set is gone
-- Uses: now, release_lock, new_task, is_same_task, judge_task, place_task, replace_payload

local pending, scheduled, retry, archived, completed, groups, aggregation_sets, set = unpack(KEYS)
local replay, task_prefix, group_prefix, now_seconds, now_microseconds, own_id, id, message, state, score, group,
  lock, lock_ttl, lock_rule, on_duplicate, on_conflict, process_at, payload, finished, once_ttl =
  unpack(ARGV, 1, 20)

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

-- The members of the set are deleted, so their ids and locks do not conflict.
local function leaves(one)
  return redis.call('ZSCORE', set, one)
end

if not redis.call('ZSCORE', aggregation_sets, set) then
  return replay == '1' and is_same_task(redis.call('HGET', task_prefix .. id, 'msg'), message) and 1 or -2
end
local code, holder = judge_task(places, '0', new, leaves)
if own_id == '1' and redis.call('EXISTS', task_prefix .. id) == 1 and not leaves(id) then
  code = 2
end
local seconds, microseconds = now(now_seconds, now_microseconds)
if code == -4 or code == -1 and (on_duplicate == 'ignore'
    or (on_duplicate == 'return_existing' and redis.call('EXISTS', task_prefix .. holder) == 1)
    or (on_duplicate == 'replace_payload'
      and replace_payload(places, '0', new, holder, seconds))) then
  code = 3
end
if code < 1 then
  return code
end

-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('ZREM', aggregation_sets, set)
for at = 21, #ARGV, 2 do
  local member, unique_key = ARGV[at], ARGV[at + 1]
  release_lock(task_prefix .. member, member, unique_key)
end
local ids = redis.call('ZRANGE', set, 0, -1)
for _, member in ipairs(ids) do
  redis.call('DEL', task_prefix .. member)
end
redis.call('DEL', set)
if code == 1 then
  place_task(places, new, seconds, microseconds)
end
return code
