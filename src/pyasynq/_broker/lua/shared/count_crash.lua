-- Count a worker crash or a lapsed lease in `field` of a task that goes back to pending; return the new
-- count. `attempt` (JSON; empty for none) is added to the task's attempts. A lock that the task owns is
-- prolonged.
-- Uses: add_attempt, prolong_lock
local function count_crash(task, id, attempt, field)
  if attempt ~= '' then
    redis.call('HSET', task, 'x:attempts', add_attempt(task, attempt))
  end
  local lock = redis.call('HGET', task, 'unique_key') or ''
  if lock ~= '' then
    prolong_lock(task, id, lock, 0, 0)
  end
  -- HINCRBY would end the script if the field is not a number.
  local count = (redis.call('HGET', task, field) or ''):match('^%d+$') or 0
  redis.call('HSET', task, field, count + 1)
  return count + 1
end
