-- Return whether a task owns a lock. Only a name with the prefix of the task's queue is a lock: a cluster aborts a
-- script that touches a key of another slot. GET also aborts it for a key that is not a string, unless it is called
-- with `pcall`.
local function owns_lock(task, id, lock)
  local prefix = string.sub(task, 1, -#'t:' - #id - 1)
  return string.sub(lock, 1, #prefix) == prefix and redis.pcall('GET', lock) == id
end
