-- Adds tasks to groups, unique ones with their locks.
-- KEYS[1] groups: set of the names of groups
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: what stands before an id in the key of a task
-- ARGV[3] group_prefix: what stands before a name in the key of a group
-- ARGV[4] now_seconds: empty for the clock of Redis
-- ARGV[5] now_microseconds: within the second
-- ARGV[6...] id, message, group, unique_key, unique_ttl: for each task; the key is empty for a task without a lock
-- Returns: position (from 0), 0 or -1: for each task whose id exists (0) or whose lock is held (-1)
-- Uses: now, ceiling

local groups = KEYS[1]
local replay, task_prefix, group_prefix, now_seconds, now_microseconds = unpack(ARGV, 1, 5)

local score = ceiling(now(now_seconds, now_microseconds))
local refused = {}
for at = 6, #ARGV, 5 do
  local id, message, group, unique_key, unique_ttl = unpack(ARGV, at, at + 4)
  local task = task_prefix .. id
  local code
  if redis.call('EXISTS', task) == 1 then
    if replay == '0' or redis.call('HGET', task, 'msg') ~= message then
      code = 0
    end
  elseif unique_key == '' or redis.call('SET', unique_key, id, 'NX', 'EX', unique_ttl) then
    redis.call('HSET', task, 'msg', message, 'state', 'aggregating', 'group', group)
    if unique_key ~= '' then
      redis.call('HSET', task, 'unique_key', unique_key)
    end
    redis.call('ZADD', group_prefix .. group, score, id)
    redis.call('SADD', groups, group)
  elseif replay == '0' or redis.call('GET', unique_key) ~= id then
    code = -1
  end
  if code then
    refused[#refused + 1] = (at - 6) / 5
    refused[#refused + 1] = code
  end
end
return refused
