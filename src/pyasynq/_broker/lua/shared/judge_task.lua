-- Decide whether a new task can be created, before anything is written. Return 1 to create it; 2 if the first
-- run of a replay has created it; 0 if its id exists; -1 and the holder if its lock is held; -4 and the id if
-- a task with the id was enqueued within `once_ttl`. There is no conflict with a task for which `leaves`
-- returns true, nor with a finished task of the same id if `on_conflict` is `replace_finished`.
-- Uses: is_same_task, own_key
local function judge_task(places, replay, new, leaves)
  local task = places.task_prefix .. new.id
  local fields = redis.call('HMGET', task, 'msg', 'state', 'unique_key')
  local finished = fields[2] == 'archived' or fields[2] == 'completed'
  local goes = leaves(new.id) or (finished and new.on_conflict == 'replace_finished')
  local exists = redis.call('EXISTS', task) == 1
  local stays = exists and not goes
  local was_enqueued = new.once_ttl ~= '' and redis.call('EXISTS', own_key(places.task_prefix, 'once:' .. new.id)) == 1
  local holder = new.lock ~= '' and redis.call('GET', new.lock)
  -- A lock that the hash does not name holds until its expiry, whether the task ends or not.
  if holder and (leaves(holder) or (holder == new.id and goes and fields[3] == new.lock)) then
    holder = false
  end
  local own = holder == new.id
  if replay == '1' and ((stays and is_same_task(fields[1], new.message)) or (own and not exists)) then
    return 2
  elseif was_enqueued or (new.once_ttl ~= '' and stays) then
    return -4, new.id
  elseif stays and not (own and new.on_duplicate ~= 'raise') then
    return 0
  elseif holder then
    return -1, holder
  end
  return 1
end
