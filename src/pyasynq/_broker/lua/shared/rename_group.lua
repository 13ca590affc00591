-- Move the name of a task's group to another field: `x:group` while it is scheduled, else `group`.
local function rename_group(task, from, to)
  local group = redis.call('HGET', task, from) or ''
  if group ~= '' then
    redis.call('HDEL', task, from)
    redis.call('HSET', task, to, group)
  end
end
