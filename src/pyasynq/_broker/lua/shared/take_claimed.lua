-- Remove from `active` and `lease` the tasks whose claims hold; claims are in ARGV (id, token, lease_score,
-- from `first` on, every `stride`). Return the positions in ARGV of the tasks taken, the ids of refused ones,
-- and the keys of the tasks taken. On a replay, a task that the first run has settled is not refused: its
-- hash is gone, or its state is `wanted_state`. `store`, unless it is nil, adds the tasks at these positions
-- to another collection with `redis.pcall`, and returns its reply. If that is an error, all tasks are put
-- back, and the script fails. `finished`, unless it is nil, is filled with the callbacks of the tasks by
-- position. If there is one, the outbox is read, so that a key of the wrong type fails before anything is
-- written.
-- Uses: give_up, is_error, later_leases, take_newest
local function take_claimed(active, lease, task_prefix, replay, wanted_state, store, finished, first, stride)
  local call, claims, number = redis.call, ARGV, 0
  local held, held_ids, held_tasks, refused = {}, {}, {}, {}
  local later = later_leases(lease, first, stride)
  -- Search for a task from the tail, where the oldest are, unless many older tasks run for long. The ranks are
  -- quoted, since a number would be converted to text in each call.
  local is_old = call('LPOS', active, claims[first], 'RANK', '-1', 'MAXLEN', '100')
  local from_end = is_old and '-1' or '1'
  -- Everything is read before anything is written: a key of the wrong type fails here.
  local claimed = {}
  for at = first, #claims, stride do
    local token
    if finished then
      local fields = call('HMGET', task_prefix .. claims[at], 'x:attempt', 'x:finished')
      token, finished[at] = fields[1], fields[2] or nil
    else
      token = call('HGET', task_prefix .. claims[at], 'x:attempt')
    end
    claimed[at] = token == claims[at + 1] and not (later and later[claims[at]])
  end
  if finished and next(finished) then
    call('HLEN', string.sub(task_prefix, 1, -3) .. 'x:outbox')
  end
  local taken = not is_old and take_newest(active, first, stride, claimed)
  for at = first, #claims, stride do
    local id = claims[at]
    local task = task_prefix .. id
    local is_held = taken and taken[id]
    if is_held then
      -- The second of two claims to one task does not hold.
      taken[id] = nil
    else
      -- LREM answers whether the task is active; it is also the first write, and one that Redis 6.2 allows when
      -- it is full.
      is_held = claimed[at] and call('LREM', active, from_end, id) == 1
    end
    if is_held then
      number = number + 1
      held[number], held_ids[number], held_tasks[number] = at, id, task
    else
      local state = replay == '1' and (call('HGET', task, 'state') or wanted_state)
      if state ~= wanted_state then
        refused[#refused + 1] = id
      end
    end
  end
  if number > 0 then
    local reply = store and store(held)
    if is_error(reply) then
      for i = 1, number do
        -- Push the tasks back to the end of `active` that they came from, in their order.
        call(is_old and 'RPUSH' or 'LPUSH', active, held_ids[is_old and number + 1 - i or i])
      end
      give_up(reply)
    end
    call('ZREM', lease, unpack(held_ids))
  end
  return held, refused, held_tasks
end
