#!lua flags=allow-oom
-- Read a lock and its owner.
-- KEYS[1] lock: holds the id of its owner
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- Returns: id of the owner, its message and state, digest, and the lock's TTL in seconds (-1 without an expiry, -2 without a lock)
-- Uses: lock_owner

local lock = KEYS[1]
local task_prefix = ARGV[1]

local owner, message, state, digest = lock_owner(lock, task_prefix)
return { owner, message, state, digest, redis.call('TTL', lock) }
