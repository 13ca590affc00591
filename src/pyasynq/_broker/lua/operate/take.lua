#!lua flags=allow-oom
-- Remove a task from its queue, if it has not changed since it was read (compare-and-delete); another queue holds a copy.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] task: the task's hash
-- KEYS[6] step: hash of the operation in this queue; a field for each task that it has taken and not released
-- ARGV[1] id: of the task
-- ARGV[2] seen: the message as it was read
-- ARGV[3] state: as it was read
-- ARGV[4] score: as it was read; empty for a pending task
-- ARGV[5] lock: key of the lock that the task had
-- ARGV[6] lifetime: seconds for which the ledger is kept
-- Returns: `done`, also if the operation has taken it before; `missing`, or `changed`
-- Uses: owns_lock

local pending, scheduled, retry, archived, task, step = unpack(KEYS)
local id, seen, state, score, lock, lifetime = unpack(ARGV)

if redis.call('HEXISTS', step, 'taken:' .. id) == 1 then
  return 'done'
end
local fields = redis.call('HMGET', task, 'msg', 'state')
if not fields[1] then
  return 'missing'
end
local sets = { scheduled = scheduled, retry = retry, archived = archived }
if fields[1] ~= seen or fields[2] ~= state then
  return 'changed'
end
if sets[state] then
  local found = redis.call('ZSCORE', sets[state], id)
  if not found or tonumber(found) ~= tonumber(score) then
    return 'changed'
  end
  redis.call('ZREM', sets[state], id)
elseif redis.call('LREM', pending, -1, id) == 0 then
  return 'changed'
end
if owns_lock(task, id, lock) then
  redis.call('DEL', lock)
end
redis.call('DEL', task)
redis.call('HSET', step, 'taken:' .. id, 1)
redis.call('EXPIRE', step, lifetime)
return 'done'
