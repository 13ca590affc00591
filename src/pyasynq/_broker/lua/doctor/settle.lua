#!lua flags=allow-oom
-- Repair tasks that have not changed since `judge`: put each into one collection, or delete it.
-- KEYS[1] pending: list of ids
-- KEYS[2] active: list of ids
-- KEYS[3] lease: sorted set of ids by the second their lease ends
-- KEYS[4] scheduled: sorted set of ids by the second they are due
-- KEYS[5] retry: sorted set of ids by the second they are due
-- KEYS[6] archived: sorted set of ids by the second they were archived
-- KEYS[7] completed: sorted set of ids by the second they are to be deleted
-- KEYS[8] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- KEYS[9] groups: set of the names of groups
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3] lease_seconds: duration of a new lease
-- ARGV[4] walk: number of ids to search from either end of a list
-- ARGV[5] now_seconds: empty for Redis' clock
-- ARGV[6] now_microseconds: within the second
-- ARGV[7...] id, seen_in, in_pending, in_active, digest, state, place, score, group, unique_key, reason, message: for each task; the first five as in `judge` and its reply; then the repaired task: an empty state deletes it, and all after the place may be empty
-- Returns: the ids of the tasks that were repaired
-- Uses: now, ceiling, nanoseconds, task_places, release_lock, rename_group, find_callbacks, write_endings

local pending, active, lease, scheduled, retry, archived, completed, aggregation_sets, groups = unpack(KEYS)
local task_prefix, group_prefix, lease_seconds, walk, now_seconds, now_microseconds = unpack(ARGV, 1, 6)

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
local seconds, microseconds = now(now_seconds, now_microseconds)

-- Return how often to remove a task from a list, or nil if that would exceed the allowed walk.
local function surplus(found, right, list, positions)
  local count = list == right and -1 or 0
  for _, place in ipairs(found) do
    count = count + (place == list and 1 or 0)
  end
  return count <= #positions and math.max(0, count) or nil
end

-- Remove an id from a list this many times, from the beginning unless that is too far.
local function take_from_list(list, id, count, positions)
  local first = 0
  for _, position in ipairs(positions) do
    first = first + (position < 2 * walk and 1 or 0)
  end
  if count > 0 and first > 0 then
    redis.call('LREM', list, math.min(first, count), id)
  end
  if count > first then
    redis.call('LREM', list, first - count, id)
  end
end

-- Remove an id from every place except the right one, and leave it there once, in front. Return whether it is
-- there.
local function clear(id, found, right)
  local kept = false
  for _, place in ipairs(found) do
    if place == right then
      kept = true
    elseif place ~= pending and place ~= active then
      redis.call('ZREM', place, id)
      if string.sub(place, 1, #group_prefix) == group_prefix and redis.call('EXISTS', place) == 0 then
        redis.call('ZREM', aggregation_sets, place)
        redis.call('SREM', groups, string.sub(place, #group_prefix + 1))
      end
    end
  end
  return kept
end

local function put(id, place, score)
  if place == pending then
    redis.call('LPUSH', pending, id)
  elseif place == active then
    redis.call('LPUSH', active, id)
  else
    redis.call('ZADD', place, score == '' and ceiling(seconds, microseconds) or score, id)
  end
end

-- Leave only the fields of a task in this state in the hash, and only an active task's lease.
local function dress(task, id, state, group, unique_key)
  if state ~= 'active' then
    redis.call('ZREM', lease, id)
    redis.call('HDEL', task, 'x:attempt')
  end
  if state == 'retry' or state == 'archived' or state == 'completed' then
    redis.call('HDEL', task, 'x:crashes', 'x:lapses')
  end
  if state ~= 'pending' then
    redis.call('HDEL', task, 'pending_since')
  end
  if state ~= 'scheduled' then
    rename_group(task, 'x:group', 'group')
  end
  redis.call('HSET', task, 'state', state)
  if state == 'pending' then
    redis.call('HSETNX', task, 'pending_since', nanoseconds(seconds, microseconds))
  elseif state == 'active' then
    redis.call('ZADD', lease, 'NX', ceiling(seconds, microseconds) + lease_seconds, id)
  end
  local is_to_join = state == 'scheduled' and redis.call('HGET', task, 'x:group')
  for field, value in pairs({ [is_to_join and 'x:group' or 'group'] = group, unique_key = unique_key }) do
    if value == '' then
      redis.call('HDEL', task, field)
    else
      redis.call('HSET', task, field, value)
    end
  end
end

local function rewrite(task, id, place, score, reason, message, is_there)
  if reason ~= '' then
    redis.call('HSET', task, 'x:trace', reason)
  end
  if message ~= '' then
    redis.call('HSET', task, 'msg', message)
  end
  if not is_there then
    put(id, place, score)
  elseif score ~= '' then
    redis.call('ZADD', place, 'XX', score, id)
  end
end

local finished = find_callbacks(task_prefix, 7, 12)
local settled = {}
for at = 7, #ARGV, 12 do
  local id, seen_in, in_pending, in_active, digest, state, place, score, group, unique_key, reason, message =
    unpack(ARGV, at, at + 11)
  local listed = { tonumber(in_pending), tonumber(in_active) }
  local found, _, values, _, now_digest, positions = task_places(places, id, seen_in, listed, seconds)
  local from_pending = surplus(found, place, pending, positions[1])
  local from_active = surplus(found, place, active, positions[2])
  local task = task_prefix .. id
  if now_digest == digest and from_pending and from_active then
    take_from_list(pending, id, from_pending, positions[1])
    take_from_list(active, id, from_active, positions[2])
    if state == '' or state == 'archived' then
      write_endings(task_prefix, finished, { at }, state == '' and 'deleted' or state, nil, nil, {})
    end
    local is_there = clear(id, found, place)
    if state == '' then
      redis.call('ZREM', lease, id)
      redis.call('DEL', task)
      release_lock(task, id, values[4] or '')
    else
      dress(task, id, state, group, unique_key)
      rewrite(task, id, place, score, reason, message, is_there)
      if place == group_prefix .. group then
        redis.call('SADD', groups, group)
      end
    end
    settled[#settled + 1] = id
  end
end
return settled
