#!lua flags=allow-oom
-- Releases a lock whose owner is still as it was judged, or gives one that never ends an end.
-- KEYS[1] lock: holds the id of its owner
-- ARGV[1] task_prefix: what stands before an id in the key of a task
-- ARGV[2] digest: of what was judged
-- ARGV[3] seconds: that the lock is to hold from now if it never ends; empty to release it
-- Returns: 1 if it was done
-- Uses: lock_owner

local lock = KEYS[1]
local task_prefix, digest, seconds = unpack(ARGV)

local _, _, _, now_digest = lock_owner(lock, task_prefix)
if now_digest ~= digest then
  return 0
elseif seconds == '' then
  return redis.call('DEL', lock)
end
return redis.call('TTL', lock) == -1 and redis.call('EXPIRE', lock, seconds) or 0
