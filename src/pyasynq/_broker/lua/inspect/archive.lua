#!lua flags=allow-oom
-- Archives tasks by hand, and makes room for them first.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: key of a task without the id at its end
-- ARGV[3] group_prefix: key of a group without the name at its end
-- ARGV[4] from_state: only tasks in this state; empty for any
-- ARGV[5] max_size: how many archived tasks are kept
-- ARGV[6] cutoff: tasks archived in this second or before are deleted
-- ARGV[7] now_seconds: empty for the clock of Redis
-- ARGV[8] now_microseconds: within the second
-- ARGV[9] anchor: the pending id from which the hints count; empty for none
-- ARGV[10] hints: for each id, how far right of the anchor it was, or `-`; `*` walks through all of pending for each
-- ARGV[11...] id: for each task
-- Returns: nothing, and changes nothing, if a pending task cannot be found in a short time; or trimmed, 1 if there is more to trim, how many are archived now, a list of id, reason: for each that is not, and of address and entry of each task with a callback
-- Uses: now, rename_group, read_places, find_pending, take_pending, take_out, trim_archived, release_finished, find_callbacks, write_endings

local pending, scheduled, retry, archived, completed, groups, aggregation_sets = unpack(KEYS)
local replay, task_prefix, group_prefix, from_state, max_size, cutoff, now_seconds, now_microseconds, anchor,
  hints = unpack(ARGV, 1, 10)

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
local seconds = now(now_seconds, now_microseconds)
read_places(places, 11)
local waiting = find_pending(places, 11, from_state, anchor, hints)
if not waiting then
  return nil
end
local finished = find_callbacks(task_prefix, 11, 1, places.fields)
take_pending(places, waiting)
local added, refused, ended, told, done = {}, {}, {}, {}, 0
for at = 11, #ARGV, 1 do
  local id = ARGV[at]
  local fields, reason = take_out(places, id, from_state, 'archived')
  if fields then
    -- A run by hand starts fresh; a recoverer of Go leaves tokens behind.
    redis.call('HDEL', task_prefix .. id, 'pending_since', 'x:attempt', 'x:crashes', 'x:lapses')
    rename_group(task_prefix .. id, 'x:group', 'group')
    redis.call('HSET', task_prefix .. id, 'state', 'archived')
    release_finished(task_prefix .. id, id)
    ended[#ended + 1] = at
    added[#added + 1] = seconds
    added[#added + 1] = id
    done = done + 1
  elseif replay == '1' and reason == 'archived' then
    done = done + 1
  else
    refused[#refused + 1] = id
    refused[#refused + 1] = reason
  end
end
write_endings(task_prefix, finished, ended, 'archived', nil, nil, told)
local surplus = redis.call('ZCARD', archived) + #added / 2 - max_size
local trimmed, more = trim_archived(archived, task_prefix, surplus, cutoff)
if #added > 0 then
  redis.call('ZADD', archived, unpack(added))
end
return { trimmed, more, done, refused, told }
