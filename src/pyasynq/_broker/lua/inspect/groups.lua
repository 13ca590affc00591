#!lua flags=no-writes
-- List a page of the groups of a queue.
-- KEYS[1] groups: set of the names of groups
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2] cursor: of the page; 0 for the first one
-- ARGV[3] limit: approximate number of groups
-- Returns: cursor of the next page (0 after the last one), and name, tasks: for each group

local groups = KEYS[1]
local group_prefix, cursor, limit = unpack(ARGV)

local page = redis.call('SSCAN', groups, cursor, 'COUNT', limit)
local found = { page[1] }
for _, name in ipairs(page[2]) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('ZCARD', group_prefix .. name)
end
return found
