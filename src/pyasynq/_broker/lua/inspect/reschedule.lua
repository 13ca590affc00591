#!lua flags=allow-oom
-- Gives a task that waits for its time or is archived another time; its lock holds as much longer.
-- KEYS[1] task: the task's hash
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- ARGV[1] id: of the task
-- ARGV[2] process_at: second at which it is due
-- ARGV[3] now_seconds: empty for the clock of Redis
-- ARGV[4] now_microseconds: within the second
-- Returns: `done`, `missing`, or the state that forbids it
-- Uses: now, owns_lock, rename_group

local task, scheduled, retry, archived = unpack(KEYS)
local id, process_at, now_seconds, now_microseconds = unpack(ARGV)

local fields = redis.call('HMGET', task, 'msg', 'state', 'unique_key')
local state, lock = fields[2], fields[3] or ''
if not fields[1] or not state then
  return 'missing'
end
local sources = { scheduled = scheduled, retry = retry, archived = archived }
local source = sources[state]
if not source then
  return state
end
local target = source
local due = tonumber(redis.call('ZSCORE', source, id) or 0)
redis.call('ZREM', source, id)
if state == 'archived' then
  target = scheduled
  -- A forwarder of Go would lose a scheduled task that names its group in its own field.
  rename_group(task, 'group', 'x:group')
  redis.call('HSET', task, 'state', 'scheduled')
end
redis.call('ZADD', target, process_at, id)
local later = process_at - math.max(due, (now(now_seconds, now_microseconds)))
if later > 0 and owns_lock(task, id, lock) then
  redis.call('PEXPIRE', lock, redis.call('PTTL', lock) + later * 1000)
end
return 'done'
