-- Returns whether a task owns a lock. Only a name that begins like all keys of the task's queue is one: a script that
-- touches a key of another slot is broken off in its middle by a cluster. GET does the same for a key that is no
-- string, unless it is called with `pcall`.
local function owns_lock(task, id, lock)
  local prefix = string.sub(task, 1, -#'t:' - #id - 1)
  return string.sub(lock, 1, #prefix) == prefix and redis.pcall('GET', lock) == id
end
