#!lua flags=allow-oom
-- Writes the result of a task, if the attempt with this token runs it.
-- KEYS[1] task: the task's hash
-- ARGV[1] token: of the attempt
-- ARGV[2] result: bytes
-- Returns: 1 if it was written

local task = KEYS[1]
local token, result = unpack(ARGV)

local fields = redis.call('HMGET', task, 'x:attempt', 'state')
if fields[1] ~= token or fields[2] ~= 'active' then
  return 0
end
-- A full Redis 6.2 refuses a script whose first write may grow; removing may not.
redis.call('HDEL', task, 'result')
redis.call('HSET', task, 'result', result)
return 1
