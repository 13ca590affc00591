#!lua flags=allow-oom
-- Releases the lock of a task that is gone.
-- KEYS[1] task: the hash that the task had
-- KEYS[2] lock: holds the id of its owner
-- ARGV[1] id: of the task
-- Returns: 1 if it was released

local task, lock = unpack(KEYS)
local id = ARGV[1]

if redis.call('GET', lock) == id and redis.call('EXISTS', task) == 0 then
  return redis.call('DEL', lock)
end
return 0
