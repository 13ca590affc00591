#!lua flags=allow-oom
-- Delete the remaining keys of a queue without tasks.
-- KEYS[1] pending: list of ids
-- KEYS[2] active: list of ids
-- KEYS[3] scheduled: sorted set of ids by the second they are due
-- KEYS[4] retry: sorted set of ids by the second they are due
-- KEYS[5] archived: sorted set of ids by the second they were archived
-- KEYS[6] completed: sorted set of ids by the second they are to be deleted
-- KEYS[7] groups: set of the names of groups
-- KEYS[8] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- KEYS[9] lease: sorted set of ids by the second their lease ends
-- KEYS[10] paused: exists while the queue is paused
-- KEYS[11] processed: number of attempts that ended
-- KEYS[12] failed: number of attempts that failed
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2...] leftover: each further key to delete
-- Returns: number of active tasks, number of all tasks, and number of groups if there are too many to read (over 1,000), else 0; the keys were deleted only if the last two are 0
-- Uses: aggregation_set_keys, count_grouped

local pending, active, scheduled, retry, archived, completed, groups, aggregation_sets, lease, paused, processed,
  failed = unpack(KEYS)
local group_prefix = unpack(ARGV, 1, 1)

local running = redis.call('LLEN', active)
local tasks = running + redis.call('LLEN', pending)
for _, key in ipairs({ scheduled, retry, archived, completed }) do
  tasks = tasks + redis.call('ZCARD', key)
end
local grouped, unseen = count_grouped(groups, group_prefix, 1000)
if grouped ~= -1 then
  tasks, unseen = tasks + grouped, 0
end
for _, key in ipairs(aggregation_set_keys(aggregation_sets, group_prefix, 1000)) do
  tasks = tasks + redis.call('ZCARD', key)
end
if tasks == 0 and unseen == 0 then
  redis.call('DEL', lease, paused, processed, failed, groups, aggregation_sets)
  for at = 2, #ARGV, 1 do
    redis.call('DEL', ARGV[at])
  end
end
return { running, tasks, unseen }
