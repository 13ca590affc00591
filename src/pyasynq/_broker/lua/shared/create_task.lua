-- Create the hash of a task with these further fields, and its lock if it has one. With a `lock_rule`, the
-- hash names the lock and keeps the rule. Return 1 if the task was created; 0 if its id exists; -1 and the
-- holder if its lock is held. Return nothing on a replay, if the first run has created the task.
-- Uses: is_same_task, owns_lock
local function create_task(replay, task, id, message, lock, lock_ttl, lock_rule, ...)
  if redis.call('EXISTS', task) == 1 then
    -- HGET fails for a key that is not a hash, unless it is called with `pcall`.
    local stored = replay == '1' and redis.pcall('HGET', task, 'msg')
    if type(stored) ~= 'string' or not is_same_task(stored, message) then
      return 0
    end
  elseif lock == '' or redis.call('SET', lock, id, 'NX', 'EX', lock_ttl) then
    redis.call('HSET', task, 'msg', message, ...)
    if lock_rule ~= '' then
      redis.call('HSET', task, 'unique_key', lock, 'x:unique_ttl', lock_rule)
    end
    return 1
  elseif replay == '0' or not owns_lock(task, id, lock) then
    -- GET fails for a key that is not a string, unless it is called with `pcall`.
    local holder = redis.pcall('GET', lock)
    return -1, type(holder) == 'string' and holder or ''
  end
end
