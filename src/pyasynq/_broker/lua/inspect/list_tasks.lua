#!lua flags=allow-oom
-- Lists the tasks of one collection.
-- KEYS[1] collection: list (from its right end) or sorted set (from its lowest score) of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: what stands before an id in the key of a task
-- ARGV[2] start: position of the first task, from 0
-- ARGV[3] stop: position of the last task
-- Returns: id, message, state, score, result, crashes, trace, token: for each task; the last five may be null

local collection, lease = unpack(KEYS)
local task_prefix, start, stop = unpack(ARGV)

local is_list = redis.call('TYPE', collection).ok == 'list'
local entries = {}
if is_list then
  local ids = redis.call('LRANGE', collection, -1 - stop, -1 - start)
  for i = #ids, 1, -1 do
    entries[#entries + 1] = ids[i]
    entries[#entries + 1] = redis.call('ZSCORE', lease, ids[i])
  end
else
  entries = redis.call('ZRANGE', collection, start, stop, 'WITHSCORES')
end
local found = {}
for i = 1, #entries, 2 do
  local id, score = entries[i], entries[i + 1]
  local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'state', 'result', 'x:crashes', 'x:trace', 'x:attempt')
  if fields[1] and fields[2] then
    for _, value in ipairs({ id, fields[1], fields[2], score, unpack(fields, 3, 6) }) do
      found[#found + 1] = value
    end
  end
end
return found
