#!lua flags=allow-oom
-- Archive a member of an aggregation set whose message cannot be decoded; keep its bytes.
-- KEYS[1] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- KEYS[2] set: sorted set of ids by the second they joined the group
-- KEYS[3] archived: sorted set of ids by the second they were archived
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] max_size: number of archived tasks to keep
-- ARGV[3] cutoff: tasks archived in this second or before are deleted
-- ARGV[4] id: of the member
-- ARGV[5] archived_at: second
-- ARGV[6] trace: reason, stored as traceback
-- Returns: trimmed, 1 if there is more to trim
-- Uses: trim_archived, release_finished

local aggregation_sets, set, archived = unpack(KEYS)
local task_prefix, max_size, cutoff, id, archived_at, trace = unpack(ARGV)

if redis.call('ZREM', set, id) == 0 then
  return { 0, 0 }
end
if redis.call('EXISTS', set) == 0 then
  redis.call('ZREM', aggregation_sets, set)
end
local surplus = redis.call('ZCARD', archived) + 1 - max_size
local trimmed, more = trim_archived(archived, task_prefix, surplus, cutoff)
redis.call('HSET', task_prefix .. id, 'state', 'archived', 'x:trace', trace)
redis.call('ZADD', archived, archived_at, id)
release_finished(task_prefix .. id, id)
return { trimmed, more }
