#!lua flags=allow-oom
-- Prolong the locks of running tasks.
-- KEYS[1] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] least: minimum number of seconds that a lock holds
-- ARGV[3...] id, unique_key: for each task
-- Returns: number of these tasks that have a lease
-- Uses: prolong_lock

local lease = KEYS[1]
local task_prefix, least = unpack(ARGV, 1, 2)

local running = 0
for at = 3, #ARGV, 2 do
  local id, unique_key = ARGV[at], ARGV[at + 1]
  if redis.call('ZSCORE', lease, id) then
    prolong_lock(task_prefix .. id, id, unique_key, 0, tonumber(least))
    running = running + 1
  end
end
return running
