#!lua flags=allow-oom
-- Archive tasks for an operator, and make room for them in the archive.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] group_prefix: prefix of group keys, before the name
-- ARGV[4] from_state: only tasks in this state; empty for any
-- ARGV[5] max_size: number of archived tasks to keep
-- ARGV[6] cutoff: tasks archived in this second or before are deleted
-- ARGV[7] now_seconds: empty for Redis' clock
-- ARGV[8] now_microseconds: within the second
-- ARGV[9] anchor: id in pending from which the hints count positions; empty for none
-- ARGV[10] hints: for each id, its distance to the right of the anchor, or `-` if unknown; `*` searches all of pending for each id
-- ARGV[11...] id: for each task
-- Returns: null, with nothing changed, if a pending task is found neither by the hints nor near an end of the list; else trimmed, 1 if there is more to trim, number of tasks archived, a list of id and reason of each task that was refused, and a list of address and entry of each task with a callback
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
    -- An operator's action resets the counts; Go's recoverer leaves tokens behind.
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
