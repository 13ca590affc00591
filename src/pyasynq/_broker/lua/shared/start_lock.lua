-- Update the lock of a task whose attempt starts: release it if its rule says so. Otherwise it holds for at
-- least a minute; by then it is renewed, or the task is recovered.
-- Uses: release_lock, prolong_lock
local function start_lock(task, id, rule)
  local lock = redis.call('HGET', task, 'unique_key') or ''
  if rule:find(' start', 1, true) then
    redis.call('HDEL', task, 'x:unique_ttl')
    release_lock(task, id, lock)
  else
    prolong_lock(task, id, lock, 0, 60)
  end
end
