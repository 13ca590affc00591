#!lua flags=allow-oom
-- Write a field of a task, if the attempt with this token owns it.
-- KEYS[1] task: the task's hash
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- ARGV[1] id: of the task
-- ARGV[2] token: of the attempt
-- ARGV[3] lease_score: latest lease end that the attempt has requested
-- ARGV[4] field: its name
-- ARGV[5] value: bytes
-- Returns: 1 if it was written

local task, lease = unpack(KEYS)
local id, token, lease_score, field, value = unpack(ARGV)

local fields = redis.call('HMGET', task, 'x:attempt', 'state')
if fields[1] ~= token or fields[2] ~= 'active' then
  return 0
end
local score = redis.call('ZSCORE', lease, id)
if score and tonumber(score) > tonumber(lease_score) then
  return 0
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('HDEL', task, field)
redis.call('HSET', task, field, value)
return 1
