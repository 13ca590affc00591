#!lua flags=allow-oom
-- Puts tasks at the end of the queue, whatever time they waited for; in an ordered queue, tried ones in front.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- KEYS[8] limits: hash of what holds for the queue
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: key of a task without the id at its end
-- ARGV[3] group_prefix: key of a group without the name at its end
-- ARGV[4] from_state: only tasks in this state; empty for any
-- ARGV[5] now_seconds: empty for the clock of Redis
-- ARGV[6] now_microseconds: within the second
-- ARGV[7...] id: for each task
-- Returns: how many tasks are pending now, and a list of id, reason: for each that stayed where it was
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
    -- A recoverer of Go leaves tokens and counts behind; a run by hand starts fresh.
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
