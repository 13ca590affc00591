-- Count a worker crash in a task that goes back to pending; return the number of crashes. `attempt` (JSON; empty
-- for nothing) is added to the task's attempts, and a lock that the task owns holds on while it waits.
-- Uses: add_attempt, prolong_lock
local function count_crash(task, id, attempt)
  if attempt ~= '' then
    redis.call('HSET', task, 'x:attempts', add_attempt(task, attempt))
  end
  local lock = redis.call('HGET', task, 'unique_key') or ''
  if lock ~= '' then
    prolong_lock(task, id, lock, 0, 0)
  end
  -- HINCRBY would end the script if the field is not a number.
  local crashes = (redis.call('HGET', task, 'x:crashes') or ''):match('^%d+$') or 0
  redis.call('HSET', task, 'x:crashes', crashes + 1)
  return crashes + 1
end
