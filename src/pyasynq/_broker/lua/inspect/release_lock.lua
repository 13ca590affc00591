#!lua flags=allow-oom
-- Releases the lock of a task that is gone.
-- KEYS[1] task: the hash that the task had
-- ARGV[1] id: of the task
-- ARGV[2] lock: key that its message names
-- Returns: 1 if it was released
-- Uses: owns_lock

local task = KEYS[1]
local id, lock = unpack(ARGV)

if redis.call('EXISTS', task) == 0 and owns_lock(task, id, lock) then
  return redis.call('DEL', lock)
end
return 0
