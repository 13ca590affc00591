#!lua flags=allow-oom
-- Release the lock of a deleted task.
-- KEYS[1] task: key of the deleted task's hash
-- ARGV[1] id: of the task
-- ARGV[2] lock: key of the lock, as the task's message names it
-- Returns: 1 if it was released
-- Uses: owns_lock

local task = KEYS[1]
local id, lock = unpack(ARGV)

if redis.call('EXISTS', task) == 0 and owns_lock(task, id, lock) then
  return redis.call('DEL', lock)
end
return 0
