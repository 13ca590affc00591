-- Release the lock of a task that ends without success, unless it follows Asynq's rule, which keeps it.
-- Uses: release_lock
local function release_finished(task, id)
  local fields = redis.call('HMGET', task, 'unique_key', 'x:unique_ttl')
  if fields[1] and fields[2] and fields[2]:find(' ', 1, true) then
    release_lock(task, id, fields[1])
  end
end
