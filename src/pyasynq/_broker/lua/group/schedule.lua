-- Store tasks that will join a group later, unique ones with their locks.
-- KEYS[1] scheduled: sorted set of ids by the second they are due
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3...] id, message, group, lock, lock_ttl, lock_rule, score: for each task; an empty lock means none, and the hash names a lock with a rule
-- Returns: position (from 0), 0 or -1, holder: for each task whose id exists (0) or whose lock is held (-1) by a task
-- Uses: create_task, keep_created

local scheduled = KEYS[1]
local replay, task_prefix = unpack(ARGV, 1, 2)

local refused = {}
for at = 3, #ARGV, 7 do
  local id, message, group, lock, lock_ttl, lock_rule, score = unpack(ARGV, at, at + 6)
  -- The field `group` would make a forwarder of Go strand the task in a group that is in no list.
  local code, holder = create_task(replay, task_prefix .. id, id, message, lock, lock_ttl, lock_rule,
    'state', 'scheduled', 'x:group', group)
  if code == 1 then
    keep_created(redis.pcall('ZADD', scheduled, score, id), task_prefix, { id }, lock ~= '' and { lock } or {})
  elseif code then
    refused[#refused + 1] = (at - 3) / 7
    refused[#refused + 1] = code
    refused[#refused + 1] = holder or ''
  end
end
return refused
