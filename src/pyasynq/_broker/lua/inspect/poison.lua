#!lua flags=no-writes
-- Find the newest archived tasks of a queue whose messages contain the error of poison tasks.
-- KEYS[1] archived: sorted set of ids by the second they were archived
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] start: position of the first task to examine; 0 is the newest one
-- ARGV[3] count: number of tasks to examine
-- ARGV[4] most: largest number of messages to find
-- ARGV[5] max_bytes: bytes of messages after which the call ends
-- ARGV[6] text: text of the error
-- Returns: number of tasks examined, 1 if the call ended early, and the messages found

local archived = KEYS[1]
local task_prefix, start, count, most, max_bytes, text = unpack(ARGV)

local found, bytes = {}, 0
local ids = redis.call('ZREVRANGE', archived, start, start + count - 1)
for looked_at, id in ipairs(ids) do
  local message = redis.call('HGET', task_prefix .. id, 'msg') or ''
  bytes = bytes + #message
  if message:find(text, 1, true) then
    found[#found + 1] = message
  end
  if #found >= tonumber(most) or bytes >= tonumber(max_bytes) then
    return { looked_at, looked_at < #ids and 1 or 0, unpack(found) }
  end
end
return { #ids, 0, unpack(found) }
