#!lua flags=no-writes
-- Count the tasks of collections of a queue, and the tasks within scores.
-- KEYS[1] pending: list of ids
-- KEYS[2] active: list of ids
-- KEYS[3] scheduled: sorted set of ids by the second they are due
-- KEYS[4] retry: sorted set of ids by the second they are due
-- KEYS[5] archived: sorted set of ids by the second they were archived
-- KEYS[6] completed: sorted set of ids by the second they are to be deleted
-- KEYS[7] groups: set of the names of groups
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2] most: largest number of groups to count
-- ARGV[3...] state, group, low, high: for each collection, with its lowest and highest score; without a group, the tasks of all groups are counted, whatever their scores
-- Returns: number of tasks, and number of those within the scores: for each collection; -1 and the number of groups if these are more than `most`
-- Uses: count_grouped

local pending, active, scheduled, retry, archived, completed, groups = unpack(KEYS)
local group_prefix, most = unpack(ARGV, 1, 2)

local lists = { pending = pending, active = active }
local sets = { scheduled = scheduled, retry = retry, archived = archived, completed = completed }
local counts = {}
for at = 3, #ARGV, 4 do
  local state, group, low, high = unpack(ARGV, at, at + 3)
  local size, within
  if lists[state] then
    size = redis.call('LLEN', lists[state])
  elseif sets[state] or group ~= '' then
    local set = sets[state] or group_prefix .. group
    size = redis.call('ZCARD', set)
    if low ~= '-inf' or high ~= '+inf' then
      within = redis.call('ZCOUNT', set, low, high)
    end
  else
    local number
    size, number = count_grouped(groups, group_prefix, tonumber(most))
    within = size == -1 and number
  end
  counts[#counts + 1] = size
  counts[#counts + 1] = within or size
end
return counts
