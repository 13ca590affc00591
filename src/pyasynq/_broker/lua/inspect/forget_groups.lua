#!lua flags=allow-oom
-- Remove the names of groups without tasks from a page of the groups of a queue; count the tasks of the others.
-- KEYS[1] groups: set of the names of groups
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2] cursor: of the page; 0 for the first one
-- ARGV[3] limit: approximate number of groups
-- Returns: cursor of the next page (0 after the last one), and the number of tasks in the groups of this page

local groups = KEYS[1]
local group_prefix, cursor, limit = unpack(ARGV)

local page = redis.call('SSCAN', groups, cursor, 'COUNT', limit)
local tasks, empty = 0, {}
for _, name in ipairs(page[2]) do
  local size = redis.call('ZCARD', group_prefix .. name)
  tasks = tasks + size
  if size == 0 then
    empty[#empty + 1] = name
  end
end
if #empty > 0 then
  redis.call('SREM', groups, unpack(empty))
end
return { page[1], tasks }
