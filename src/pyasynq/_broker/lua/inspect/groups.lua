#!lua flags=allow-oom
-- Lists the groups of a queue.
-- KEYS[1] groups: set of the names of groups
-- ARGV[1] group_prefix: what stands before a name in the key of a group
-- Returns: name, tasks: for each group

local groups = KEYS[1]
local group_prefix = ARGV[1]

local found = {}
for _, name in ipairs(redis.call('SMEMBERS', groups)) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('ZCARD', group_prefix .. name)
end
return found
