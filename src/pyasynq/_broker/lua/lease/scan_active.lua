#!lua flags=allow-oom
-- List a page of the active tasks: those that a server took, or those without a lease.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] token_prefix: prefix of that server's tokens; empty for the tasks without a lease
-- ARGV[3] start: number of the newest ids to skip
-- ARGV[4] limit: number of ids to check
-- Returns: number of ids checked, and id, message, crashes, token, lease_score, begun, lapses, extended for each task; all but id may be empty

local active, lease = unpack(KEYS)
local task_prefix, token_prefix, start, limit = unpack(ARGV)

local ids = redis.call('LRANGE', active, start, start + limit - 1)
local found = { #ids }
if #ids == 0 then
  return found
end
local scores = redis.call('ZMSCORE', lease, unpack(ids))
for i, id in ipairs(ids) do
  if token_prefix ~= '' or not scores[i] then
    local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'x:crashes', 'x:attempt', 'x:begun', 'x:lapses', 'x:extended')
    local token = fields[3] or ''
    if token:sub(1, #token_prefix) == token_prefix then
      found[#found + 1] = id
      found[#found + 1] = fields[1] or ''
      found[#found + 1] = tonumber(fields[2] or 0) or 0
      found[#found + 1] = token
      found[#found + 1] = scores[i] or ''
      found[#found + 1] = fields[4] or ''
      found[#found + 1] = tonumber(fields[5] or 0) or 0
      found[#found + 1] = fields[6] or ''
    end
  end
end
return found
