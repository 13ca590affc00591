-- Delete up to 1,000 archived tasks, with the locks they own: tasks archived at the cutoff or before, and the
-- oldest `surplus` ones. Return the number of deleted tasks, and 1 if there are more to delete.
-- Uses: owns_lock
local function trim_archived(archived, task_prefix, surplus, cutoff)
  local old = redis.call('ZCOUNT', archived, '-inf', cutoff)
  local number = math.min(math.max(surplus, old), 1000)
  if number <= 0 then
    return 0, 0
  end
  local ids = redis.call('ZRANGE', archived, 0, number - 1)
  local doomed = {}
  for _, id in ipairs(ids) do
    local task = task_prefix .. id
    local lock = redis.call('HGET', task, 'unique_key') or ''
    if owns_lock(task, id, lock) then
      doomed[#doomed + 1] = lock
    end
    doomed[#doomed + 1] = task
  end
  redis.call('DEL', unpack(doomed))
  redis.call('ZREM', archived, unpack(ids))
  return number, math.max(surplus, old) > number and 1 or 0
end
