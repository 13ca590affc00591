#!lua flags=allow-oom
-- Delete tasks, with the locks they own.
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
-- ARGV[5] with_sets: 1 to delete members of aggregation sets too
-- ARGV[6] anchor: id in pending from which the hints count positions; empty for none
-- ARGV[7] hints: for each id, its distance to the right of the anchor, or `-` if unknown; `*` searches all of pending for each id
-- ARGV[8...] id: for each task
-- Returns: null, with nothing changed, if a pending task is found neither by the hints nor near an end of the list; else number of tasks deleted, a list of id and reason of each task that was refused, a list of the messages of grouped tasks that may own a lock which their hash did not name, and a list of address and entry of each task with a callback
-- Uses: owns_lock, read_places, find_pending, take_pending, take_out, find_callbacks, write_endings

local pending, scheduled, retry, archived, completed, groups, aggregation_sets = unpack(KEYS)
local replay, task_prefix, group_prefix, from_state, with_sets, anchor, hints = unpack(ARGV, 1, 7)

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
read_places(places, 8)
local waiting = find_pending(places, 8, from_state, anchor, hints)
if not waiting then
  return nil
end
local finished = find_callbacks(task_prefix, 8, 1, places.fields)
take_pending(places, waiting)
local doomed, refused, grouped, ended, told, done = {}, {}, {}, {}, {}, 0
for at = 8, #ARGV, 1 do
  local id = ARGV[at]
  local fields, reason = take_out(places, id, from_state, '', with_sets == '1')
  if fields then
    local group, lock = fields[3] or '', fields[4] or ''
    local task = task_prefix .. id
    ended[#ended + 1] = at
    doomed[#doomed + 1] = task
    if owns_lock(task, id, lock) then
      doomed[#doomed + 1] = lock
    elseif lock == '' and group ~= '' then
      grouped[#grouped + 1] = fields[1]
    end
    done = done + 1
  elseif replay == '1' and reason == 'missing' then
    done = done + 1
  else
    refused[#refused + 1] = id
    refused[#refused + 1] = reason
  end
end
write_endings(task_prefix, finished, ended, 'deleted', nil, nil, told)
if #doomed > 0 then
  redis.call('DEL', unpack(doomed))
end
return { done, refused, grouped, told }
