#!lua flags=no-writes
-- List the tasks in a range of positions of a collection if their messages contain all texts.
-- KEYS[1] collection: list (from its right end) or sorted set (from its lowest score) of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] start: position of the first task, from 0
-- ARGV[3] stop: position of the last task
-- ARGV[4] max_bytes: bytes after which no further task is listed
-- ARGV[5...] text: each text that a message must contain
-- Returns: positions looked at, 1 if there may be more to look at, and id, message, state, score, result, crashes, trace, token, pending_since, progress: for each task; the last seven may be null
-- Uses: read_task

local collection, lease = unpack(KEYS)
local task_prefix, start, stop, max_bytes = unpack(ARGV, 1, 4)

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

local function is_wanted(message)
  for at = 5, #ARGV, 1 do
    if not message:find(ARGV[at], 1, true) then
      return false
    end
  end
  return true
end

local found, bytes = {}, 0
for i = 1, #entries, 2 do
  local task = read_task(task_prefix .. entries[i], entries[i], entries[i + 1])
  if task[2] and task[3] and is_wanted(task[2]) then
    bytes = bytes + #task[2] + #(task[5] or '') + #(task[7] or '')
    if #found > 0 and bytes > tonumber(max_bytes) then
      return { (i - 1) / 2, 1, unpack(found) }
    end
    found[#found + 1] = task
  end
end
local more = #entries / 2 > stop - start and 1 or 0
return { #entries / 2, more, unpack(found) }
