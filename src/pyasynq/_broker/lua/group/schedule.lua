-- Stores tasks that are to join a group later, unique ones with their locks.
-- KEYS[1] scheduled: sorted set of ids by the second they are due
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: what stands before an id in the key of a task
-- ARGV[3...] id, message, group, unique_key, unique_ttl, score: for each task; no lock for an empty key
-- Returns: position (from 0), 0 or -1: for each task whose id exists (0) or whose lock is held (-1)

local scheduled = KEYS[1]
local replay, task_prefix = unpack(ARGV, 1, 2)

local refused = {}
for at = 3, #ARGV, 6 do
  local id, message, group, unique_key, unique_ttl, score = unpack(ARGV, at, at + 5)
  local task = task_prefix .. id
  local code
  if redis.call('EXISTS', task) == 1 then
    if replay == '0' or redis.call('HGET', task, 'msg') ~= message then
      code = 0
    end
  elseif unique_key == '' or redis.call('SET', unique_key, id, 'NX', 'EX', unique_ttl) then
    -- The field `group` would make a forwarder of Go strand the task in a group that nobody knows of.
    redis.call('HSET', task, 'msg', message, 'state', 'scheduled', 'x:group', group)
    if unique_key ~= '' then
      redis.call('HSET', task, 'unique_key', unique_key)
    end
    redis.call('ZADD', scheduled, score, id)
  elseif replay == '0' or redis.call('GET', unique_key) ~= id then
    code = -1
  end
  if code then
    refused[#refused + 1] = (at - 3) / 6
    refused[#refused + 1] = code
  end
end
return refused
