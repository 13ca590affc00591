#!lua flags=allow-oom
-- Puts the task that was made of an aggregation set into its place, and deletes the set and its members.
-- KEYS[1] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- KEYS[2] set: sorted set of ids by the second they joined the group
-- KEYS[3] task: hash of the new task
-- KEYS[4] target: list or sorted set that the new task goes to
-- KEYS[5] groups: set of the names of groups
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: what stands before an id in the key of a task
-- ARGV[3] own_id: 1 if the new task has the set's id, so that only this set can have made a task with it
-- ARGV[4] new_id: of the new task
-- ARGV[5] message: of the new task
-- ARGV[6] state: of the new task
-- ARGV[7] score: second at which a scheduled task is due
-- ARGV[8] group: that the new task joins; empty for none
-- ARGV[9] lock: key of the new task's lock; empty for none
-- ARGV[10] lock_ttl: seconds that the lock holds
-- ARGV[11] now_seconds: empty for the clock of Redis
-- ARGV[12] now_microseconds: within the second
-- ARGV[13...] id, unique_key: for each member that may own a lock
-- Returns: 1 done, 2 done before, 0 the new id exists, -1 the lock is held, -2 the set is no more
-- Uses: now, ceiling, nanoseconds

local aggregation_sets, set, task, target, groups = unpack(KEYS)
local replay, task_prefix, own_id, new_id, message, state, score, group, lock, lock_ttl, now_seconds,
  now_microseconds = unpack(ARGV, 1, 12)

if not redis.call('ZSCORE', aggregation_sets, set) then
  return replay == '1' and redis.call('HGET', task, 'msg') == message and 1 or -2
end
-- What is in the set goes away, so neither its ids nor its locks stand in the way.
local done_before = redis.call('EXISTS', task) == 1 and not redis.call('ZSCORE', set, new_id)
if done_before and own_id == '0' then
  return 0
end
local owner = not done_before and lock ~= '' and redis.call('GET', lock)
if owner and not redis.call('ZSCORE', set, owner) then
  return -1
end

redis.call('ZREM', aggregation_sets, set)
for at = 13, #ARGV, 2 do
  local id, unique_key = ARGV[at], ARGV[at + 1]
  if redis.call('GET', unique_key) == id then
    redis.call('DEL', unique_key)
  end
end
local ids = redis.call('ZRANGE', set, 0, -1)
for _, id in ipairs(ids) do
  redis.call('DEL', task_prefix .. id)
end
redis.call('DEL', set)
if done_before then
  return 2
end

local seconds, microseconds = now(now_seconds, now_microseconds)
redis.call('HSET', task, 'msg', message, 'state', state)
if lock ~= '' then
  redis.call('SET', lock, new_id, 'EX', lock_ttl)
  redis.call('HSET', task, 'unique_key', lock)
end
if state == 'pending' then
  redis.call('HSET', task, 'pending_since', nanoseconds(seconds, microseconds))
  redis.call('LPUSH', target, new_id)
elseif state == 'aggregating' then
  redis.call('HSET', task, 'group', group)
  redis.call('ZADD', target, ceiling(seconds, microseconds), new_id)
  redis.call('SADD', groups, group)
else
  redis.call('ZADD', target, score, new_id)
  if group ~= '' then
    redis.call('HSET', task, 'x:group', group)
  end
end
return 1
