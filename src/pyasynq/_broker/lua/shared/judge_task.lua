-- Decides what becomes of a new task before anything is written: 1 to create it, 2 if the first run of a replay
-- did, 0 for an id that exists, -1 and its holder for a lock that is held. A task that `leaves` names stands in
-- nobody's way, nor does a finished one with the same id if the new task's rule says so.
-- Uses: is_same_task
local function judge_task(places, replay, new, leaves)
  local task = places.task_prefix .. new.id
  local fields = redis.call('HMGET', task, 'msg', 'state', 'unique_key')
  local finished = fields[2] == 'archived' or fields[2] == 'completed'
  local goes = leaves(new.id) or (finished and new.on_conflict == 'replace_finished')
  local exists = redis.call('EXISTS', task) == 1
  local stays = exists and not goes
  local holder = new.lock ~= '' and redis.call('GET', new.lock)
  -- A lock that the hash does not name holds until its expiry, whatever becomes of the task.
  if holder and (leaves(holder) or (holder == new.id and goes and fields[3] == new.lock)) then
    holder = false
  end
  local own = holder == new.id
  if replay == '1' and ((stays and is_same_task(fields[1], new.message)) or (own and not exists)) then
    return 2
  elseif stays and not (own and new.on_duplicate ~= 'raise') then
    return 0
  elseif holder then
    return -1, holder
  end
  return 1
end
