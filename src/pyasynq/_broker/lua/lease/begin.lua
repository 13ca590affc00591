#!lua flags=allow-oom
-- Record that an attempt's handler starts, if the attempt still owns its task.
-- KEYS[1] task: hash
-- ARGV[1] token: of the attempt
-- Returns: 1, or 0 if the task is gone or belongs to another attempt

local task = KEYS[1]
local token = ARGV[1]

if redis.call('HGET', task, 'x:attempt') ~= token then
  return 0
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('HDEL', task, 'x:begun')
redis.call('HSET', task, 'x:begun', token)
return 1
