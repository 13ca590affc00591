-- Archives the tasks at these positions in ARGV (id, token, lease_score, message, archived_at, trace).
local function archive(archived, task_prefix, positions)
  local added = {}
  for _, at in ipairs(positions) do
    local id, _, _, message, archived_at, trace = unpack(ARGV, at, at + 5)
    local task = task_prefix .. id
    redis.call('HDEL', task, 'x:attempt', 'x:crashes', 'x:trace')
    redis.call('HSET', task, 'state', 'archived')
    if message ~= '' then
      redis.call('HSET', task, 'msg', message)
    end
    if trace ~= '' then
      redis.call('HSET', task, 'x:trace', trace)
    end
    added[#added + 1] = archived_at
    added[#added + 1] = id
  end
  if #added > 0 then
    redis.call('ZADD', archived, unpack(added))
  end
end
