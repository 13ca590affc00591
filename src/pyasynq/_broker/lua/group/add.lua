-- Add tasks to groups, unique ones with their locks.
-- KEYS[1] groups: set of the names of groups
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] group_prefix: prefix of group keys, before the name
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6...] id, message, group, lock, lock_ttl, lock_rule: for each task; an empty lock means none, and the hash names a lock with a rule
-- Returns: position (from 0), 0 or -1, holder: for each task whose id exists (0) or whose lock is held (-1) by a task
-- Uses: now, ceiling, create_task, join_group, keep_created

local groups = KEYS[1]
local replay, task_prefix, group_prefix, now_seconds, now_microseconds = unpack(ARGV, 1, 5)

local score = ceiling(now(now_seconds, now_microseconds))
local function leave_groups(joined)
  for id, group in pairs(joined) do
    redis.call('ZREM', group_prefix .. group, id)
    if redis.call('EXISTS', group_prefix .. group) == 0 then
      redis.call('SREM', groups, group)
    end
  end
end

local refused, ids, locks, joined = {}, {}, {}, {}
for at = 6, #ARGV, 6 do
  local id, message, group, lock, lock_ttl, lock_rule = unpack(ARGV, at, at + 5)
  local code, holder = create_task(replay, task_prefix .. id, id, message, lock, lock_ttl, lock_rule,
    'state', 'aggregating', 'group', group)
  if code == 1 then
    ids[#ids + 1] = id
    if lock ~= '' then
      locks[#locks + 1] = lock
    end
    local failed = join_group(groups, group_prefix, group, score, id)
    if failed then
      leave_groups(joined)
    end
    keep_created(failed, task_prefix, ids, locks)
    joined[id] = group
  elseif code then
    refused[#refused + 1] = (at - 6) / 6
    refused[#refused + 1] = code
    refused[#refused + 1] = holder or ''
  end
end
return refused
