-- Takes up to `limit` tasks from the front of a queue and gives each a lease and the token of the call. `call`
-- holds the keys `pending`, `active` and `lease`, and `task_prefix`, `token`, `lease_score`, `max_bytes`,
-- `suspect_from` and `suspect_room`. Returns ghosts, empty and suspect_waiting, how many tasks were taken, and
-- a list of id, message and crashes for each.
-- Uses: start_lock
local function take_tasks(call, limit)
  local pending, task_prefix, token = call.pending, call.task_prefix, call.token
  -- As a number it would be made text again for each task.
  local lease_score = tostring(call.lease_score)
  local max_bytes, suspect_from = call.max_bytes, call.suspect_from
  local redis_call = redis.call
  local ghosts, empty, suspect_waiting, taken, bytes = 0, 0, 0, 0, 0
  local ids, leases, reply = {}, {}, {}

  local function take(task, id, message, crashes, rule)
    redis_call('HSET', task, 'state', 'active', 'x:attempt', token)
    redis_call('HDEL', task, 'pending_since')
    if rule then
      start_lock(task, id, rule)
    end
    bytes = bytes + #message
    leases[2 * taken + 1], leases[2 * taken + 2] = lease_score, id
    reply[3 * taken + 1], reply[3 * taken + 2], reply[3 * taken + 3] = id, message, crashes
    taken = taken + 1
    ids[taken] = id
  end

  -- Walks over ids in the order in which they left the queue; returns those that are to go back.
  local function walk(popped)
    for i, id in ipairs(popped) do
      local task = task_prefix .. id
      local fields = redis_call('HMGET', task, 'msg', 'x:crashes', 'x:unique_ttl')
      local message, crashes, rule = fields[1], fields[2] and tonumber(fields[2]) or 0, fields[3]
      local suspect = suspect_from > 0 and crashes >= suspect_from
      if not message then
        redis_call('DEL', task)
        ghosts = ghosts + 1
      elseif suspect and call.suspect_room == '1' and taken == 0 then
        take(task, id, message, crashes, rule)
        return { unpack(popped, i + 1) }
      elseif suspect or (taken > 0 and bytes + #message > max_bytes) then
        suspect_waiting = suspect and 1 or 0
        return { unpack(popped, i) }
      else
        take(task, id, message, crashes, rule)
      end
    end
  end

  local rest
  while taken < limit and not rest do
    local popped = redis.call('RPOP', pending, limit - taken)
    if not popped or #popped == 0 then
      empty = 1
      break
    end
    rest = walk(popped)
  end
  if rest then
    for i = #rest, 1, -1 do
      redis.call('RPUSH', pending, rest[i])
    end
  end
  if taken > 0 then
    redis.call('LPUSH', call.active, unpack(ids))
    redis.call('ZADD', call.lease, unpack(leases))
  end
  return ghosts, empty, suspect_waiting, taken, reply
end
