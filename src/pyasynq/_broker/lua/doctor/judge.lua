#!lua flags=allow-oom
-- Read everything about tasks that look damaged.
-- KEYS[1] pending: list of ids
-- KEYS[2] active: list of ids
-- KEYS[3] lease: sorted set of ids by the second their lease ends
-- KEYS[4] scheduled: sorted set of ids by the second they are due
-- KEYS[5] retry: sorted set of ids by the second they are due
-- KEYS[6] archived: sorted set of ids by the second they were archived
-- KEYS[7] completed: sorted set of ids by the second they are to be deleted
-- KEYS[8] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3] walk: number of ids to search from either end of a list
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6...] id, seen_in, in_pending, in_active: for each task, with the key of a collection that it was seen in, which may be empty, and how often it was counted in the lists
-- Returns: places, scores, values, lease, digest and 1 if there is a hash, for each task
-- Uses: now, task_places

local pending, active, lease, scheduled, retry, archived, completed, aggregation_sets = unpack(KEYS)
local task_prefix, group_prefix, walk, now_seconds, now_microseconds = unpack(ARGV, 1, 5)

local places = {
  pending = pending,
  active = active,
  lease = lease,
  scheduled = scheduled,
  retry = retry,
  archived = archived,
  completed = completed,
  aggregation_sets = aggregation_sets,
  task_prefix = task_prefix,
  group_prefix = group_prefix,
  walk = walk,
}
local seconds = now(now_seconds, now_microseconds)
local reply = {}
for at = 6, #ARGV, 4 do
  local id, seen_in, in_pending, in_active = unpack(ARGV, at, at + 3)
  local listed = { tonumber(in_pending), tonumber(in_active) }
  local found, scores, values, held, digest = task_places(places, id, seen_in, listed, seconds)
  reply[#reply + 1] = found
  reply[#reply + 1] = scores
  reply[#reply + 1] = values
  reply[#reply + 1] = held
  reply[#reply + 1] = digest
  reply[#reply + 1] = redis.call('EXISTS', task_prefix .. id)
end
return reply
