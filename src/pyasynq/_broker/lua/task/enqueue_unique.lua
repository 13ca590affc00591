-- Put unique tasks at the end of a queue, each with its lock.
-- KEYS[1] pending: list of ids
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- ARGV[5...] id, message, lock, lock_ttl, lock_rule: for each task; the hash names a lock with a rule
-- Returns: position (from 0), 0 or -1, holder: for each task whose id exists (0) or whose lock is held (-1) by a task
-- Uses: now, nanoseconds, create_task, keep_created

local pending = KEYS[1]
local replay, task_prefix, now_seconds, now_microseconds = unpack(ARGV, 1, 4)

local pending_since = nanoseconds(now(now_seconds, now_microseconds))
local refused, added, locks = {}, {}, {}
for at = 5, #ARGV, 5 do
  local id, message, lock, lock_ttl, lock_rule = unpack(ARGV, at, at + 4)
  local code, holder = create_task(replay, task_prefix .. id, id, message, lock, lock_ttl, lock_rule,
    'state', 'pending', 'pending_since', pending_since)
  if code == 1 then
    added[#added + 1] = id
    locks[#locks + 1] = lock
  elseif code then
    refused[#refused + 1] = (at - 5) / 5
    refused[#refused + 1] = code
    refused[#refused + 1] = holder or ''
  end
end
if #added > 0 then
  keep_created(redis.pcall('LPUSH', pending, unpack(added)), task_prefix, added, locks)
end
return refused
