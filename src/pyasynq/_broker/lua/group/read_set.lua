#!lua flags=allow-oom
-- Read members of an aggregation set, oldest first.
-- KEYS[1] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- KEYS[2] set: sorted set of ids by the second they joined the group
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] start: position of the first member, from 0
-- ARGV[3] limit: largest number of members
-- ARGV[4] max_bytes: maximum bytes of messages; a larger first message is taken alone
-- Returns: null if the set is gone; else the position for the next call (empty at the end), and id, message for each member

local aggregation_sets, set = unpack(KEYS)
local task_prefix, start, limit, max_bytes = unpack(ARGV)
start, limit, max_bytes = tonumber(start), tonumber(limit), tonumber(max_bytes)

if not redis.call('ZSCORE', aggregation_sets, set) then
  return false
end
local ids = redis.call('ZRANGE', set, start, start + limit - 1)
local reply, bytes = { #ids == limit and start + limit or '' }, 0
for i, id in ipairs(ids) do
  local message = redis.call('HGET', task_prefix .. id, 'msg')
  if message then
    bytes = bytes + #message
    if bytes > max_bytes and #reply > 1 then
      reply[1] = start + i - 1
      break
    end
    reply[#reply + 1] = id
    reply[#reply + 1] = message
  end
end
return reply
