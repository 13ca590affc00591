#!lua flags=allow-oom
-- Forgets the groups without tasks among a page of the groups of a queue, and counts the tasks in the others.
-- KEYS[1] groups: set of the names of groups
-- ARGV[1] group_prefix: key of a group without the name at its end
-- ARGV[2] cursor: of the page; 0 for the first one
-- ARGV[3] limit: about how many groups
-- Returns: cursor of the next page (0 after the last one), and tasks

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
