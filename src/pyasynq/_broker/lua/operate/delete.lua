#!lua flags=allow-oom
-- Delete tasks so that it can be undone: rename their hashes, and record their places.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- KEYS[8] gone: hash of an id, and a number and JSON that say how to put the task back
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3] gone_prefix: prefix of the keys of renamed hashes, before the id
-- ARGV[4] from_state: only tasks in this state; empty for any
-- ARGV[5] lifetime: seconds for which the deletion can be undone
-- ARGV[6] anchor: id in pending from which the hints count positions; empty for none
-- ARGV[7] hints: for each id, its distance to the right of the anchor, or `-` if unknown; `*` searches all of pending for each id
-- ARGV[8...] id: for each task
-- Returns: null, with nothing changed, if a pending task is found neither by the hints nor near an end of the list; else number of tasks deleted, a list of id and reason of each task that was refused, the total bytes of the deleted messages, and a list of address and entry of each task with a callback
-- Uses: owns_lock, read_places, find_pending, neighbours, take_pending, take_out, lock_in_message, find_callbacks, write_endings

local pending, scheduled, retry, archived, completed, groups, aggregation_sets, gone = unpack(KEYS)
local task_prefix, group_prefix, gone_prefix, from_state, lifetime, anchor, hints = unpack(ARGV, 1, 7)

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
local waiting, seen = find_pending(places, 8, from_state, anchor, hints)
if not waiting then
  return nil
end
local around = neighbours(pending, waiting, seen)
local finished, positions = find_callbacks(task_prefix, 8, 1, places.fields)
take_pending(places, waiting)
-- An undo restores tasks in the reverse order of this number, so that each finds its old neighbours.
local number = redis.call('HLEN', gone)
local ways, refused, told, bytes = {}, {}, {}, 0

local function set_aside(id)
  local task = task_prefix .. id
  local _, state, group = unpack(places.fields[id] or {})
  local left, right, score = unpack(around[id] or { '', '', '' })
  if state == 'aggregating' then
    score = redis.call('ZSCORE', group_prefix .. (group or ''), id) or ''
  elseif state ~= 'active' and state ~= 'pending' and places[state] then
    score = redis.call('ZSCORE', places[state], id) or ''
  end
  local fields, reason = take_out(places, id, from_state, '', false)
  if not fields then
    refused[#refused + 1] = id
    refused[#refused + 1] = reason
    return
  end
  local lock, left_of_lock = fields[4] or '', 0
  if lock == '' and group and group ~= '' then
    -- A Go client that adds a unique task to a group names the lock in the message only.
    lock = lock_in_message(fields[1])
  end
  if owns_lock(task, id, lock) then
    left_of_lock = redis.call('PTTL', lock)
    redis.call('DEL', lock)
  else
    lock = ''
  end
  write_endings(task_prefix, finished, { positions[id] }, 'deleted', nil, nil, told)
  redis.call('RENAME', task, gone_prefix .. id)
  redis.call('EXPIRE', gone_prefix .. id, lifetime)
  number = number + 1
  bytes = bytes + #fields[1]
  ways[#ways + 1] = id
  ways[#ways + 1] = number .. ' ' .. cjson.encode({ state, score, left, right, lock, left_of_lock, group or '' })
end

for _, one in ipairs(waiting) do
  set_aside(one.id)
end
for at = 8, #ARGV, 1 do
  if not places.taken[ARGV[at]] then
    set_aside(ARGV[at])
  end
end
if #ways > 0 then
  redis.call('HSET', gone, unpack(ways))
  redis.call('EXPIRE', gone, lifetime)
end
return { #ways / 2, refused, bytes, told }
