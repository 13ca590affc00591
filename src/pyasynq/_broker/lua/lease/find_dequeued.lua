#!lua flags=allow-oom
-- Find the active tasks that one dequeue call took.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] token: of that call
-- ARGV[3] limit: number of the newest ids to search
-- Returns: id, message, crashes, lease_score (0 for none): for each task, oldest first

local active, lease = unpack(KEYS)
local task_prefix, token, limit = unpack(ARGV)

local ids = redis.call('LRANGE', active, 0, limit - 1)
local found = {}
for i = #ids, 1, -1 do
  local fields = redis.call('HMGET', task_prefix .. ids[i], 'x:attempt', 'msg', 'x:crashes')
  if fields[1] == token and fields[2] then
    found[#found + 1] = ids[i]
    found[#found + 1] = fields[2]
    found[#found + 1] = tonumber(fields[3] or 0) or 0
    found[#found + 1] = tonumber(redis.call('ZSCORE', lease, ids[i]) or 0)
  end
end
return found
