-- Release a lock if this task owns it; an empty key means no lock.
-- Uses: owns_lock
local function release_lock(task, id, lock)
  if owns_lock(task, id, lock) then
    redis.call('DEL', lock)
  end
end
