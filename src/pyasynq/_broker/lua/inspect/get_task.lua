#!lua flags=no-writes
-- Return one task.
-- KEYS[1] task: the task's hash
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] scheduled: sorted set of ids by the second they are due
-- KEYS[4] retry: sorted set of ids by the second they are due
-- KEYS[5] archived: sorted set of ids by the second they were archived
-- KEYS[6] completed: sorted set of ids by the second they are to be deleted
-- ARGV[1] id: of the task
-- Returns: id, message, state, score, result, crashes, trace, token, pending_since, progress, attempts, of which the last eight may be null; nothing if the task does not exist
-- Uses: read_task

local task, lease, scheduled, retry, archived, completed = unpack(KEYS)
local id = ARGV[1]

local found = read_task(task, id, false)
if not found[2] or not found[3] then
  return {}
end
local collections = {
  active = lease,
  scheduled = scheduled,
  retry = retry,
  archived = archived,
  completed = completed,
}
local collection = collections[found[3]]
found[4] = collection and redis.call('ZSCORE', collection, id) or false
found[11] = redis.call('HGET', task, 'x:attempts')
return found
