-- Store unique tasks to run later, each with its lock.
-- KEYS[1] scheduled: sorted set of ids by the second they are due
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3...] id, message, score, lock, lock_ttl, lock_rule: for each task; the hash names a lock with a rule
-- Returns: position (from 0), 0 or -1, holder: for each task whose id exists (0) or whose lock is held (-1) by a task
-- Uses: create_task, keep_created

local scheduled = KEYS[1]
local replay, task_prefix = unpack(ARGV, 1, 2)

local refused, added, ids, locks = {}, {}, {}, {}
for at = 3, #ARGV, 6 do
  local id, message, score, lock, lock_ttl, lock_rule = unpack(ARGV, at, at + 5)
  local code, holder = create_task(replay, task_prefix .. id, id, message, lock, lock_ttl, lock_rule,
    'state', 'scheduled')
  if code == 1 then
    added[#added + 1] = score
    added[#added + 1] = id
    ids[#ids + 1] = id
    locks[#locks + 1] = lock
  elseif code then
    refused[#refused + 1] = (at - 3) / 6
    refused[#refused + 1] = code
    refused[#refused + 1] = holder or ''
  end
end
if #added > 0 then
  keep_created(redis.pcall('ZADD', scheduled, unpack(added)), task_prefix, ids, locks)
end
return refused
