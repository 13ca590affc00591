#!lua flags=allow-oom
-- Moves due tasks to the end of the queue or into their group; in an ordered queue, tried ones to the front.
-- KEYS[1] source: sorted set of ids by the second they are due
-- KEYS[2] pending: list of ids
-- KEYS[3] groups: set of the names of groups
-- KEYS[4] limits: hash of what holds for the queue
-- ARGV[1] task_prefix: what stands before an id in the key of a task
-- ARGV[2] group_prefix: what stands before a name in the key of a group
-- ARGV[3] tried: 1 if these tasks were tried before
-- ARGV[4] limit: how many tasks at most
-- ARGV[5] now_seconds: empty for the clock of Redis
-- ARGV[6] now_microseconds: within the second
-- Returns: moved, 1 if more are due, second the next one is due (empty for none), seconds, microseconds
-- Uses: now, ceiling, nanoseconds, stored_rules

local source, pending, groups, limits = unpack(KEYS)
local task_prefix, group_prefix, tried, limit, now_seconds, now_microseconds = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
local pending_since = nanoseconds(seconds, microseconds)
local ids = redis.call('ZRANGEBYSCORE', source, '-inf', seconds, 'LIMIT', 0, limit)
local to_front = false
if #ids > 0 then
  to_front = tried == '1' and stored_rules(limits) == 2
  if to_front then
    -- What is put in front last is taken first: that is to be the one that was due first.
    ids = redis.call('ZRANGE', source, seconds, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, limit)
  end
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
  elseif group ~= '' and not to_front then
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
  redis.call(to_front and 'RPUSH' or 'LPUSH', pending, unpack(added))
end
local next_one = redis.call('ZRANGE', source, 0, 0, 'WITHSCORES')
local more = next_one[2] and tonumber(next_one[2]) <= seconds and 1 or 0
return { moved, more, next_one[2] or '', seconds, microseconds }
