-- Put tasks at the front of a queue in their order, each with its lock if it has one.
-- KEYS[1] pending: list of ids
-- KEYS[2] limits: hash of the settings of the queue
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- ARGV[5...] id, message, lock, lock_ttl, lock_rule: for each task; an empty lock means none, and the hash names a lock with a rule
-- Returns: position (from 0), code, holder: for each task whose id exists (0), whose lock is held (-1) by a task, or whose queue is ordered (-5)
-- Uses: now, nanoseconds, create_task, keep_created

local pending, limits = unpack(KEYS)
local replay, task_prefix, now_seconds, now_microseconds = unpack(ARGV, 1, 4)

local pending_since = nanoseconds(now(now_seconds, now_microseconds))
local is_ordered = redis.call('HGET', limits, 'ordered') == '1'
local refused, added, locks = {}, {}, {}
for at = 5, #ARGV, 5 do
  local id, message, lock, lock_ttl, lock_rule = unpack(ARGV, at, at + 4)
  local code, holder = -5, ''
  if not is_ordered then
    code, holder = create_task(replay, task_prefix .. id, id, message, lock, lock_ttl, lock_rule,
      'state', 'pending', 'pending_since', pending_since)
  end
  if code == 1 then
    -- Tasks are taken from the end of the list, so the last one that is pushed is the first.
    table.insert(added, 1, id)
    if lock ~= '' then
      locks[#locks + 1] = lock
    end
  elseif code then
    refused[#refused + 1] = (at - 5) / 5
    refused[#refused + 1] = code
    refused[#refused + 1] = holder or ''
  end
end
if #added > 0 then
  keep_created(redis.pcall('RPUSH', pending, unpack(added)), task_prefix, added, locks)
end
return refused
