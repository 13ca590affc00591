#!lua flags=allow-oom
-- Replace the message of a scheduled, retry or archived task; move its lock if unique_key is given.
-- KEYS[1] task: the task's hash
-- ARGV[1] id: of the task
-- ARGV[2] seen: the message as it was read
-- ARGV[3] message: new message
-- ARGV[4] unique_key: key to rename the task's lock to; empty to leave the lock as it is
-- Returns: `done`, `missing`, `changed` if the stored message differs from `seen`, `locked`, or the state that forbids it
-- Uses: owns_lock

local task = KEYS[1]
local id, seen, message, unique_key = unpack(ARGV)

local fields = redis.call('HMGET', task, 'msg', 'state', 'unique_key')
local state, lock = fields[2], fields[3] or ''
if not fields[1] or not state then
  return 'missing'
end
if state ~= 'scheduled' and state ~= 'retry' and state ~= 'archived' then
  return state
end
if fields[1] == message then
  return 'done'
end
if fields[1] ~= seen then
  return 'changed'
end
if unique_key ~= '' and (redis.call('GET', unique_key) or id) ~= id then
  return 'locked'
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('HDEL', task, 'msg')
redis.call('HSET', task, 'msg', message)
if unique_key ~= '' then
  redis.call('HSET', task, 'unique_key', unique_key)
  -- A lock that has lapsed is not taken again: without an update, the task would not take it either.
  if owns_lock(task, id, lock) then
    redis.call('RENAME', lock, unique_key)
  end
end
return 'done'
