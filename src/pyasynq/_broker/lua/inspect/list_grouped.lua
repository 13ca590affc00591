#!lua flags=allow-oom
-- List the tasks in several groups; remove ids without an aggregating task, and the names of groups without tasks.
-- KEYS[1] groups: set of the names of groups
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] most: number of ids to look at
-- ARGV[4...] name: of each group
-- Returns: each id with an aggregating task

local groups = KEYS[1]
local group_prefix, task_prefix, most = unpack(ARGV, 1, 3)

local left, found, gone, empty = tonumber(most), {}, {}, {}
for at = 4, #ARGV, 1 do
  local name = ARGV[at]
  local group = group_prefix .. name
  local ids = left > 0 and redis.call('ZRANGE', group, 0, left - 1) or {}
  local ghosts = {}
  for _, id in ipairs(ids) do
    local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'state')
    if not fields[1] then
      gone[#gone + 1] = task_prefix .. id
    end
    if fields[1] and fields[2] == 'aggregating' then
      found[#found + 1] = id
    else
      ghosts[#ghosts + 1] = id
    end
  end
  left = left - #ids
  if #ghosts > 0 then
    redis.call('ZREM', group, unpack(ghosts))
  end
  if redis.call('EXISTS', group) == 0 then
    empty[#empty + 1] = name
  end
end
if #gone > 0 then
  redis.call('DEL', unpack(gone))
end
if #empty > 0 then
  redis.call('SREM', groups, unpack(empty))
end
return found
