-- Does to the lock of a task what the start of an attempt does: it goes for good if its rule says so, and
-- otherwise holds at least for a minute, in which the first renewal or a recovery comes.
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
