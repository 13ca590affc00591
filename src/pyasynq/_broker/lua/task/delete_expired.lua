#!lua flags=allow-oom
-- Delete completed tasks whose retention has ended.
-- KEYS[1] completed: sorted set of ids by the second they are to be deleted
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] limit: largest number of tasks
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- Returns: number of tasks deleted
-- Uses: now

local completed = KEYS[1]
local task_prefix, limit, now_seconds, now_microseconds = unpack(ARGV)

local seconds = now(now_seconds, now_microseconds)
local ids = redis.call('ZRANGEBYSCORE', completed, '-inf', seconds, 'LIMIT', 0, limit)
if #ids > 0 then
  local doomed = {}
  for i, id in ipairs(ids) do
    doomed[i] = task_prefix .. id
  end
  redis.call('ZREM', completed, unpack(ids))
  redis.call('DEL', unpack(doomed))
end
return #ids
