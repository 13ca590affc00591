-- Apply the start of an attempt to its task's lock: release it if its rule says so; otherwise let it hold for at
-- least a minute, within which the first renewal or a recovery comes.
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
