-- Put tasks at the end of a queue.
-- KEYS[1] pending: list of ids
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- ARGV[5...] id, message: for each task
-- Returns: position (from 0), 0, empty: for each task whose id exists
-- Uses: now, nanoseconds, create_task, keep_created

local pending = KEYS[1]
local replay, task_prefix, now_seconds, now_microseconds = unpack(ARGV, 1, 4)

local pending_since = nanoseconds(now(now_seconds, now_microseconds))
local refused, added = {}, {}
for at = 5, #ARGV, 2 do
  local id, message = ARGV[at], ARGV[at + 1]
  local code = create_task(replay, task_prefix .. id, id, message, '', '', '',
    'state', 'pending', 'pending_since', pending_since)
  if code == 1 then
    added[#added + 1] = id
  elseif code then
    refused[#refused + 1] = (at - 5) / 2
    refused[#refused + 1] = code
    refused[#refused + 1] = ''
  end
end
if #added > 0 then
  keep_created(redis.pcall('LPUSH', pending, unpack(added)), task_prefix, added, {})
end
return refused
