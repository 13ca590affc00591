-- Put a task into a group; a key of the wrong type fails before anything is written for good. Return the error of
-- `redis.pcall`, or nothing.
-- Uses: is_error
local function join_group(groups, group_prefix, group, score, id)
  local reply = redis.pcall('SADD', groups, group)
  if is_error(reply) then
    return reply
  end
  local is_new = reply == 1
  reply = redis.pcall('ZADD', group_prefix .. group, score, id)
  if is_error(reply) then
    if is_new then
      redis.call('SREM', groups, group)
    end
    return reply
  end
end
