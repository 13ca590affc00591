#!lua flags=no-writes
-- Estimate the memory of a queue from a sample of its tasks.
-- KEYS[1] pending: list of ids
-- KEYS[2] active: list of ids
-- KEYS[3] scheduled: sorted set of ids by the second they are due
-- KEYS[4] retry: sorted set of ids by the second they are due
-- KEYS[5] archived: sorted set of ids by the second they were archived
-- KEYS[6] completed: sorted set of ids by the second they are to be deleted
-- KEYS[7] groups: set of the names of groups
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3] grouped: number of tasks in groups
-- Returns: bytes

local pending, active, scheduled, retry, archived, completed, groups = unpack(KEYS)
local task_prefix, group_prefix, grouped = unpack(ARGV)

-- Return the total bytes of these tasks, and their number.
local function weigh(ids)
  local bytes, number = 0, 0
  for _, id in ipairs(ids) do
    local size = redis.call('MEMORY', 'USAGE', task_prefix .. id)
    if size then
      bytes, number = bytes + size, number + 1
    end
  end
  return bytes, number
end

local total = 0
local function add(collection, ids, length)
  if #ids > 0 then
    total = total + weigh(ids) / #ids * length + redis.call('MEMORY', 'USAGE', collection)
  end
end

for _, list in ipairs({ active, pending }) do
  add(list, redis.call('LRANGE', list, 0, 19), redis.call('LLEN', list))
end
for _, set in ipairs({ scheduled, retry, archived, completed }) do
  add(set, redis.call('ZRANGE', set, 0, 19), redis.call('ZCARD', set))
end
local sampled, found = 0, 0
for _, name in ipairs(redis.call('SRANDMEMBER', groups, 5)) do
  local bytes, number = weigh(redis.call('ZRANGE', group_prefix .. name, 0, 19))
  sampled, found = sampled + bytes, found + number
end
if found > 0 then
  total = total + sampled / found * grouped
end
return math.floor(total)
