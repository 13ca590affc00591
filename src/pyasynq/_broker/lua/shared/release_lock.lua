-- Releases a lock if this task owns it; there is none for an empty key.
local function release_lock(lock, id)
  if lock ~= '' and redis.call('GET', lock) == id then
    redis.call('DEL', lock)
  end
end
