#!lua flags=allow-oom
-- Moves due tasks to the end of the queue, or into their group.
-- KEYS[1] source: sorted set of ids by the second they are due
-- KEYS[2] pending: list of ids
-- KEYS[3] groups: set of the names of groups
-- ARGV[1] task_prefix: what stands before an id in the key of a task
-- ARGV[2] group_prefix: what stands before a name in the key of a group
-- ARGV[3] limit: how many tasks at most
-- ARGV[4] now_seconds: empty for the clock of Redis
-- ARGV[5] now_microseconds: within the second
-- Returns: moved, 1 if more are due, second the next one is due (empty for none), seconds, microseconds
-- Uses: now, ceiling, nanoseconds

local source, pending, groups = unpack(KEYS)
local task_prefix, group_prefix, limit, now_seconds, now_microseconds = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
local pending_since = nanoseconds(seconds, microseconds)
local ids = redis.call('ZRANGEBYSCORE', source, '-inf', seconds, 'LIMIT', 0, limit)
if #ids > 0 then
  redis.call('ZREM', source, unpack(ids))
end
local added, moved = {}, 0
for _, id in ipairs(ids) do
  local task = task_prefix .. id
  local fields = redis.call('HMGET', task, 'msg', 'group', 'x:group', 'x:attempt')
  local group = fields[2] or ''
  if group == '' then
    group = fields[3] or ''
  end
  if fields[4] then
    -- A recoverer of Go took the task from an attempt of ours and left the token.
    redis.call('HDEL', task, 'x:attempt')
  end
  if not fields[1] then
    redis.call('DEL', task)
  elseif group ~= '' then
    redis.call('HDEL', task, 'x:group')
    redis.call('HSET', task, 'state', 'aggregating', 'group', group)
    redis.call('ZADD', group_prefix .. group, ceiling(seconds, microseconds), id)
    redis.call('SADD', groups, group)
    moved = moved + 1
  else
    redis.call('HSET', task, 'state', 'pending', 'pending_since', pending_since)
    added[#added + 1] = id
    moved = moved + 1
  end
end
if #added > 0 then
  redis.call('LPUSH', pending, unpack(added))
end
local next_one = redis.call('ZRANGE', source, 0, 0, 'WITHSCORES')
local more = next_one[2] and tonumber(next_one[2]) <= seconds and 1 or 0
return { moved, more, next_one[2] or '', seconds, microseconds }
