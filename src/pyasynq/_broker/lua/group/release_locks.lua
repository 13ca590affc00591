#!lua flags=allow-oom
-- Release the locks of members that were deleted with their aggregation set.
-- KEYS[1] set: the deleted aggregation set
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2...] member, unique_key: for each member that may own a lock
-- Returns: 1, or 0 if the set still exists
-- Uses: release_lock

local set = KEYS[1]
local task_prefix = ARGV[1]

if redis.call('EXISTS', set) == 1 then
  return 0
end
for at = 2, #ARGV, 2 do
  local member, unique_key = ARGV[at], ARGV[at + 1]
  -- A member may have come back under its id.
  if redis.call('EXISTS', task_prefix .. member) == 0 then
    release_lock(task_prefix .. member, member, unique_key)
  end
end
return 1
