-- Put back tasks that an operation has deleted, with their locks; a pending one between its old neighbours.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] gone: hash of an id, and a number and JSON that say how to put the task back
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3] gone_prefix: prefix of the keys of renamed hashes, before the id
-- ARGV[4] most_walked: number of pending ids that Redis may walk past; the first task is restored in any case
-- ARGV[5...] id: for each task, the last deleted first
-- Returns: number of tasks restored; a list of id and reason of the others: `missing`, `exists` if the id is taken, or `locked`; and the number of ids at the end that were left for the next call

local pending, scheduled, retry, archived, completed, groups, gone = unpack(KEYS)
local task_prefix, group_prefix, gone_prefix, most_walked = unpack(ARGV, 1, 4)

local sets = { scheduled = scheduled, retry = retry, archived = archived, completed = completed }
local refused, done, walked = {}, 0, 0

-- Return how many ids Redis may walk past before it finds an id, and its position if that is near the right end.
local function length_of_walk(id)
  if id == '' or redis.call('LPOS', pending, id, 'MAXLEN', 1000) then
    return 1000
  end
  local place = redis.call('LPOS', pending, id, 'RANK', -1, 'MAXLEN', 1000)
  return place and 20000 or redis.call('LLEN', pending), place
end

-- Redis walks from the left end to the neighbour; the check avoids a walk through the whole list for a missing one.
local function insert(side, neighbour, id)
  return neighbour ~= '' and redis.call('HGET', task_prefix .. neighbour, 'state') == 'pending'
    and redis.call('LINSERT', pending, side, neighbour, id) > 0
end

local function put_into_pending(left, right, id, place)
  local behind = {}
  if place then
    behind = redis.call('RPOP', pending, redis.call('LLEN', pending) - place)
  elseif right ~= '' and (insert('BEFORE', right, id) or insert('AFTER', left, id)) then
    return
  end
  redis.call('RPUSH', pending, id)
  for i = #behind, 1, -1 do
    redis.call('RPUSH', pending, behind[i])
  end
end

for at = 5, #ARGV, 1 do
  local id = ARGV[at]
  local task, kept = task_prefix .. id, gone_prefix .. id
  local way = redis.call('HGET', gone, id)
  local reason
  local state, score, left, right, lock, left_of_lock, group, place
  if not way or redis.call('EXISTS', kept) == 0 then
    reason = 'missing'
  elseif redis.call('EXISTS', task) == 1 then
    reason = 'exists'
  else
    state, score, left, right, lock, left_of_lock, group = unpack(cjson.decode(way:match(' (.*)')))
    if lock ~= '' and redis.call('EXISTS', lock) == 1 then
      reason = 'locked'
    elseif state == 'pending' then
      local walk
      walk, place = length_of_walk(right)
      walked = walked + walk
      if done > 0 and walked > tonumber(most_walked) then
        return { done, refused, #ARGV - at + 1 }
      end
    end
  end
  if reason then
    refused[#refused + 1] = id
    refused[#refused + 1] = reason
  else
    if state == 'aggregating' then
      redis.call('ZADD', group_prefix .. group, score, id)
      redis.call('SADD', groups, group)
    elseif sets[state] then
      redis.call('ZADD', sets[state], score, id)
    else
      put_into_pending(left, right, id, place)
    end
    redis.call('RENAME', kept, task)
    redis.call('PERSIST', task)
    if left_of_lock > 0 then
      redis.call('SET', lock, id, 'PX', left_of_lock)
    elseif lock ~= '' and left_of_lock == -1 then
      redis.call('SET', lock, id)
    end
    redis.call('HDEL', gone, id)
    done = done + 1
  end
end
return { done, refused, 0 }
