#!lua flags=allow-oom
-- Release a lock that has not changed since it was read, or set the expiry of a lock that has none.
-- KEYS[1] lock: holds the id of its owner
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] digest: digest that `look_at_lock` returned
-- ARGV[3] seconds: expiry from now for an endless lock; empty to release it
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
