#!lua flags=no-writes
-- Find tasks by their ids.
-- KEYS[1] lease: sorted set of ids by the second their lease ends
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] max_bytes: bytes of messages after which the call ends
-- ARGV[3...] id: for each task
-- Returns: ids looked at, and id, message, state, score, result, crashes, trace, token, pending_since, progress, attempts: for each task that exists; the last eight may be null
-- Uses: read_task

local lease, scheduled, retry, archived, completed = unpack(KEYS)
local task_prefix, max_bytes = unpack(ARGV, 1, 2)

local collections = {
  active = lease,
  scheduled = scheduled,
  retry = retry,
  archived = archived,
  completed = completed,
}
local found, bytes = {}, 0
for at = 3, #ARGV, 1 do
  local id = ARGV[at]
  local task = read_task(task_prefix .. id, id, false)
  if task[2] and task[3] then
    local collection = collections[task[3]]
    task[4] = collection and redis.call('ZSCORE', collection, id) or false
    task[11] = redis.call('HGET', task_prefix .. id, 'x:attempts')
    found[#found + 1] = task
    bytes = bytes + #task[2] + #(task[5] or '') + #(task[7] or '')
    if bytes >= tonumber(max_bytes) then
      return { at - 2, unpack(found) }
    end
  end
end
return { #ARGV - 2, unpack(found) }
