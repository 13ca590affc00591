-- Return the number of tasks in the groups of a queue, and the number of groups. With more groups than `most` the
-- tasks are not counted, and their number is -1.
local function count_grouped(groups, group_prefix, most)
  local tasks, number = 0, redis.call('SCARD', groups)
  if number > most then
    return -1, number
  end
  if number > 0 then
    for _, name in ipairs(redis.call('SMEMBERS', groups)) do
      tasks = tasks + redis.call('ZCARD', group_prefix .. name)
    end
  end
  return tasks, number
end
