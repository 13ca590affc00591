-- Takes up to `limit` tasks from the front of a queue and gives each a lease and the token of the call. `call`
-- holds the keys `pending`, `active` and `lease`, and `task_prefix`, `token`, `lease_score`, `max_bytes`,
-- `suspect_from` and `suspect_room`. Returns ghosts, empty and suspect_waiting, how many tasks were taken, and
-- a list of id, message and crashes for each.
-- If a key has the wrong type, the script fails and all tasks stand where they stood.
-- Uses: give_up, is_error, start_lock
local function take_tasks(call, limit)
  local pending, task_prefix, token = call.pending, call.task_prefix, call.token
  -- As a number it would be made text again for each task.
  local lease_score = tostring(call.lease_score)
  local max_bytes, suspect_from = call.max_bytes, call.suspect_from
  local redis_call, redis_pcall = redis.call, redis.pcall
  local ghosts, empty, suspect_waiting, taken, bytes = 0, 0, 0, 0, 0
  local ids, leases, reply, rules, ghost_ids = {}, {}, {}, {}, {}

  local function take(id, message, crashes, rule)
    bytes = bytes + #message
    leases[2 * taken + 1], leases[2 * taken + 2] = lease_score, id
    reply[3 * taken + 1], reply[3 * taken + 2], reply[3 * taken + 3] = id, message, crashes
    taken = taken + 1
    ids[taken], rules[taken] = id, rule
  end

  local function put_back(popped)
    for i = #popped, 1, -1 do
      redis_call('RPUSH', pending, popped[i])
    end
  end

  -- Nothing has been written but what left the queue: it goes back, with what comes behind it in `rest`.
  local function undo(failed, rest)
    put_back(rest)
    put_back(ids)
    put_back(ghost_ids)
    give_up(failed)
  end

  -- Walks over ids in the order in which they left the queue; returns those that are to go back.
  local function walk(popped)
    for i, id in ipairs(popped) do
      local fields = redis_pcall('HMGET', task_prefix .. id, 'msg', 'x:crashes', 'x:unique_ttl')
      if fields.err then
        undo(fields, { unpack(popped, i) })
      end
      local message, crashes, rule = fields[1], fields[2] and tonumber(fields[2]) or 0, fields[3]
      local suspect = suspect_from > 0 and crashes >= suspect_from
      if not message then
        ghosts = ghosts + 1
        ghost_ids[ghosts] = id
      elseif suspect and call.suspect_room == '1' and taken == 0 then
        take(id, message, crashes, rule)
        return { unpack(popped, i + 1) }
      elseif suspect or (taken > 0 and bytes + #message > max_bytes) then
        suspect_waiting = suspect and 1 or 0
        return { unpack(popped, i) }
      else
        take(id, message, crashes, rule)
      end
    end
  end

  local rest
  while taken < limit and not rest do
    local popped = redis_pcall('RPOP', pending, limit - taken)
    if popped and popped.err then
      undo(popped, {})
    end
    if not popped or #popped == 0 then
      empty = 1
      break
    end
    rest = walk(popped)
  end
  if taken > 0 then
    local failed = redis_pcall('LPUSH', call.active, unpack(ids))
    if is_error(failed) then
      undo(failed, rest or {})
    end
    failed = redis_pcall('ZADD', call.lease, unpack(leases))
    if is_error(failed) then
      redis_call('LPOP', call.active, taken)
      undo(failed, rest or {})
    end
  end
  put_back(rest or {})
  for i = 1, taken do
    local task = task_prefix .. ids[i]
    redis_call('HSET', task, 'state', 'active', 'x:attempt', token)
    redis_call('HDEL', task, 'pending_since')
    if rules[i] then
      start_lock(task, ids[i], rules[i])
    end
  end
  for _, id in ipairs(ghost_ids) do
    redis_call('DEL', task_prefix .. id)
  end
  return ghosts, empty, suspect_waiting, taken, reply
end
