#!lua flags=allow-oom
-- Record that an attempt's handler starts, or that its worker lives, if the attempt still owns its task.
-- KEYS[1] task: hash
-- ARGV[1] token: of the attempt
-- ARGV[2] field: field of the hash to write the token to
-- Returns: 1, or 0 if the task is gone or belongs to another attempt

local task = KEYS[1]
local token, field = unpack(ARGV)

if redis.call('HGET', task, 'x:attempt') ~= token then
  return 0
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('HDEL', task, field)
redis.call('HSET', task, field, token)
return 1
