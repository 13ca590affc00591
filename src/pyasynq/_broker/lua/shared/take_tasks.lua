-- Take up to `limit` tasks from the front of a queue; give each a lease and the token of the call. `call`
-- holds the keys `pending`, `active` and `lease`, and `task_prefix`, `token`, `lease_score`, `max_bytes`,
-- `suspect_from`, `suspect_room` and `ordered`. Suspects keep their places, and those behind them are taken. With
-- `suspect_room` 1, one suspect is taken and all others keep theirs. In an ordered queue, no task passes another.
-- Return ghosts, empty, suspect_waiting, the number of tasks taken, and a list of id, message, crashes and
-- pending_since (null if there is none) for each. If a key has the wrong type, the script fails and all tasks stay in their places.
-- Uses: give_up, is_error, start_lock
local function take_tasks(call, limit)
  local pending, task_prefix, token = call.pending, call.task_prefix, call.token
  -- As a number it would be converted to text for each task.
  local lease_score = tostring(call.lease_score)
  local max_bytes, suspect_from = call.max_bytes, call.suspect_from
  local wants_suspect = call.suspect_room == '1'
  local redis_call, redis_pcall = redis.call, redis.pcall
  local ghosts, empty, suspect_waiting, taken, bytes = 0, 0, 0, 0, 0
  local ids, leases, reply, rules, ghost_ids, passed = {}, {}, {}, {}, {}, {}
  -- Number of ids checked, of those to pop, and of those to push back.
  local seen, popped, returned, ended = 0, 0, 0, limit == 0
  local longest = wants_suspect and 100 or 1000
  if wants_suspect then
    limit = math.min(limit, 1)
  end

  local function take(id, message, crashes, rule, since)
    bytes = bytes + #message
    leases[2 * taken + 1], leases[2 * taken + 2] = lease_score, id
    local at = 4 * taken
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = id, message, crashes, since
    taken = taken + 1
    ids[taken], rules[taken] = id, rule
  end

  local function put_back(from)
    for i = #from, 1, -1 do
      redis_call('RPUSH', pending, from[i])
    end
  end

  -- Check ids from the front of the queue on, and return the failure that ends it: `first`, `last` and `step`
  -- give the order of a page.
  local function walk(page, first, last, step)
    for i = first, last, step do
      if taken == limit and not wants_suspect then
        ended = true
        return
      end
      local id = page[i]
      local fields = redis_pcall('HMGET', task_prefix .. id, 'msg', 'x:crashes', 'x:unique_ttl', 'pending_since')
      if fields.err then
        return fields
      end
      local message, crashes, rule = fields[1], fields[2] and tonumber(fields[2]) or 0, fields[3]
      local suspect = suspect_from > 0 and crashes >= suspect_from
      seen = seen + 1
      if not message then
        ghosts = ghosts + 1
        ghost_ids[ghosts] = id
        popped, returned = seen, #passed
      elseif suspect ~= wants_suspect or taken == limit then
        passed[#passed + 1] = id
        if suspect and suspect_waiting == 0 then
          suspect_waiting = crashes
        end
        if call.ordered or suspect_waiting > 0 and wants_suspect then
          ended = true
          empty = wants_suspect and 0 or 1
          return
        end
      elseif taken > 0 and bytes + #message > max_bytes then
        ended = true
        return
      else
        take(id, message, crashes, rule, fields[4])
        popped, returned = seen, #passed
      end
    end
  end

  -- Fast path, without suspects and ghosts: pop at once. Return the popped ids; nil if there was a suspect or ghost.
  local function pop()
    local page = redis_pcall('RPOP', pending, limit) or {}
    if page.err then
      give_up(page)
    end
    local failed = walk(page, 1, #page, 1)
    if failed or suspect_waiting > 0 or ghosts > 0 then
      put_back(page)
      ghosts, empty, suspect_waiting, taken, bytes = 0, 0, 0, 0, 0
      ids, leases, reply, rules, ghost_ids, passed = {}, {}, {}, {}, {}, {}
      seen, popped, returned, ended = 0, 0, 0, false
      if failed then
        give_up(failed)
      end
      return
    end
    empty = #page < limit and not ended and 1 or 0
    return page
  end

  -- Slow path: check first, then pop only what is needed, so that nothing changes if only suspects wait.
  local function look()
    while not ended and (wants_suspect or taken < limit) do
      local most = seen == 0 and not wants_suspect and limit or 100
      local page = redis_pcall('LRANGE', pending, -seen - most, -seen - 1)
      if page.err then
        give_up(page)
      end
      local failed = walk(page, #page, 1, -1)
      if failed then
        give_up(failed)
      end
      local more = #page == most and #passed < longest
      if not ended and not more then
        ended = true
        -- Suspects at the front of the queue do not count: the queue is empty otherwise.
        empty = (wants_suspect or taken > 0 and #page == most) and 0 or 1
      end
    end
    return popped > 0 and redis_call('RPOP', pending, popped) or {}
  end

  local left
  if call.suspect_room == '' and limit > 0 then
    left = pop()
  end
  left = left or look()
  if taken > 0 then
    local failed = redis_pcall('LPUSH', call.active, unpack(ids))
    if is_error(failed) then
      put_back(left)
      give_up(failed)
    end
    failed = redis_pcall('ZADD', call.lease, unpack(leases))
    if is_error(failed) then
      redis_call('LPOP', call.active, taken)
      put_back(left)
      give_up(failed)
    end
  end
  put_back({ unpack(left, popped + 1) })
  put_back({ unpack(passed, 1, returned) })
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
