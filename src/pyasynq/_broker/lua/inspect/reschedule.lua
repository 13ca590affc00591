#!lua flags=allow-oom
-- Change the due times of scheduled, retry and archived tasks; prolong their locks by the same time.
-- KEYS[1] scheduled: sorted set of ids by the second they are due
-- KEYS[2] retry: sorted set of ids by the second they are due
-- KEYS[3] archived: sorted set of ids by the second they were archived
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] now_seconds: empty for Redis' clock
-- ARGV[3] now_microseconds: within the second
-- ARGV[4...] id, process_at: for each task, its id and its new due time (Unix second)
-- Returns: a list of id and reason of each task left unchanged: `missing` or the state that forbids it
-- Uses: now, owns_lock, rename_group

local scheduled, retry, archived = unpack(KEYS)
local task_prefix, now_seconds, now_microseconds = unpack(ARGV, 1, 3)

local sources = { scheduled = scheduled, retry = retry, archived = archived }
local seconds = now(now_seconds, now_microseconds)
local refused = {}
for at = 4, #ARGV, 2 do
  local id, process_at = ARGV[at], ARGV[at + 1]
  local task = task_prefix .. id
  local fields = redis.call('HMGET', task, 'msg', 'state', 'unique_key')
  local state, lock = fields[2], fields[3] or ''
  local source = fields[1] and sources[state]
  if source then
    local target = source
    local due = tonumber(redis.call('ZSCORE', source, id) or 0)
    redis.call('ZREM', source, id)
    if state == 'archived' then
      target = scheduled
      -- The field `group` would make a forwarder of Go strand the task in an unlisted group.
      rename_group(task, 'group', 'x:group')
      redis.call('HSET', task, 'state', 'scheduled')
    end
    redis.call('ZADD', target, process_at, id)
    local later = process_at - math.max(due, seconds)
    if later > 0 and owns_lock(task, id, lock) then
      redis.call('PEXPIRE', lock, redis.call('PTTL', lock) + later * 1000)
    end
  else
    refused[#refused + 1] = id
    refused[#refused + 1] = fields[1] and state or 'missing'
  end
end
return refused
