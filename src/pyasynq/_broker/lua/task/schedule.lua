-- Store tasks to run later.
-- KEYS[1] scheduled: sorted set of ids by the second they are due
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3...] id, message, score: for each task
-- Returns: position (from 0), 0, empty: for each task whose id exists
-- Uses: create_task, keep_created

local scheduled = KEYS[1]
local replay, task_prefix = unpack(ARGV, 1, 2)

local refused, added, ids = {}, {}, {}
for at = 3, #ARGV, 3 do
  local id, message, score = unpack(ARGV, at, at + 2)
  local code = create_task(replay, task_prefix .. id, id, message, '', '', '', 'state', 'scheduled')
  if code == 1 then
    added[#added + 1] = score
    added[#added + 1] = id
    ids[#ids + 1] = id
  elseif code then
    refused[#refused + 1] = (at - 3) / 3
    refused[#refused + 1] = code
    refused[#refused + 1] = ''
  end
end
if #added > 0 then
  keep_created(redis.pcall('ZADD', scheduled, unpack(added)), task_prefix, ids, {})
end
return refused
