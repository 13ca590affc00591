-- Creates the hash of a task with these further fields, and its lock if it has one. Returns 1, or why not:
-- 0 for an id that exists, -1 for a lock that is held, nothing for what the first run of a replay did.
local function create_task(replay, task, id, message, unique_key, unique_ttl, ...)
  if redis.call('EXISTS', task) == 1 then
    if replay == '0' or redis.call('HGET', task, 'msg') ~= message then
      return 0
    end
  elseif unique_key == '' then
    redis.call('HSET', task, 'msg', message, ...)
    return 1
  elseif redis.call('SET', unique_key, id, 'NX', 'EX', unique_ttl) then
    redis.call('HSET', task, 'msg', message, 'unique_key', unique_key, ...)
    return 1
  elseif replay == '0' or redis.call('GET', unique_key) ~= id then
    return -1
  end
end
