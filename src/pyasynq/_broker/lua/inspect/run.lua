#!lua flags=allow-oom
-- Put tasks at the end of the queue, whether they are due or not; in an ordered queue, retry tasks go to the front.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- KEYS[8] limits: hash of the settings of the queue
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] group_prefix: prefix of group keys, before the name
-- ARGV[4] from_state: only tasks in this state; empty for any
-- ARGV[5] now_seconds: empty for Redis' clock
-- ARGV[6] now_microseconds: within the second
-- ARGV[7...] id: for each task
-- Returns: number of tasks made pending, and a list of id and reason of each task that was refused
-- Uses: now, nanoseconds, stored_rules, rename_group, take_out

local pending, scheduled, retry, archived, completed, groups, aggregation_sets, limits = unpack(KEYS)
local replay, task_prefix, group_prefix, from_state, now_seconds, now_microseconds = unpack(ARGV, 1, 6)

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
local pending_since = nanoseconds(now(now_seconds, now_microseconds))
local ordered = stored_rules(limits) == 2
local moved, heads, refused, done = {}, {}, {}, 0
for at = 7, #ARGV, 1 do
  local id = ARGV[at]
  local fields, reason = take_out(places, id, from_state, 'pending')
  if fields then
    -- An operator's action resets the counts; Go's recoverer leaves tokens and counts behind.
    redis.call('HDEL', task_prefix .. id, 'x:attempt', 'x:crashes', 'x:lapses')
    rename_group(task_prefix .. id, 'x:group', 'group')
    redis.call('HSET', task_prefix .. id, 'state', 'pending', 'pending_since', pending_since)
    local target = ordered and fields[2] == 'retry' and heads or moved
    target[#target + 1] = id
    done = done + 1
  elseif replay == '1' and reason == 'pending' then
    done = done + 1
  else
    refused[#refused + 1] = id
    refused[#refused + 1] = reason
  end
end
if #moved > 0 then
  redis.call('LPUSH', pending, unpack(moved))
end
for i = #heads, 1, -1 do
  redis.call('RPUSH', pending, heads[i])
end
return { done, refused }
