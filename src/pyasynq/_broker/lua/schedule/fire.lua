-- Enqueues the task of a tick, unless this tick or a later one of its entry has been fired.
-- KEYS[1] ticks: hash of the last tick of each entry
-- KEYS[2] pending: list of ids
-- KEYS[3] scheduled: sorted set of ids by the second they are due
-- KEYS[4] groups: set of the names of groups
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: what stands before an id in the key of a task
-- ARGV[3] now_seconds: empty for the clock of Redis
-- ARGV[4] now_microseconds: within the second
-- ARGV[5] entry: id
-- ARGV[6] tick: Unix time
-- ARGV[7] id: of the task
-- ARGV[8] message: of the task
-- ARGV[9] state: that the task begins with
-- ARGV[10] score: the second it is due
-- ARGV[11] unique_key: of the task, empty for none
-- ARGV[12] unique_ttl: seconds
-- ARGV[13] group: that the task joins, empty for none
-- ARGV[14] group_prefix: what stands before a name in the key of a group
-- Returns: 1, 0 if the id exists, -1 if the lock is held or -2 if the tick was fired; the last tick
-- Uses: now, ceiling, nanoseconds, create_task

local ticks, pending, scheduled, groups = unpack(KEYS)
local replay, task_prefix, now_seconds, now_microseconds, entry, tick, id, message, state, score,
  unique_key, unique_ttl, group, group_prefix = unpack(ARGV)

local task = task_prefix .. id
local last = redis.call('HGET', ticks, entry)
if last and tonumber(last) >= tonumber(tick) then
  local ours = replay == '1' and last == tick and redis.call('HGET', task, 'msg') == message
  return { ours and 1 or -2, last }
end
redis.call('HSET', ticks, entry, tick)
local seconds, microseconds = now(now_seconds, now_microseconds)
local fields = { 'state', state }
if state == 'pending' then
  fields = { 'state', state, 'pending_since', nanoseconds(seconds, microseconds) }
elseif state == 'aggregating' then
  fields = { 'state', state, 'group', group }
elseif group ~= '' then
  -- The field `group` would make a forwarder of Go strand the task in a group that nobody knows of.
  fields = { 'state', state, 'x:group', group }
end
local code = create_task('0', task, id, message, unique_key, unique_ttl, unpack(fields))
if code ~= 1 then
  return { code, tick }
end
if state == 'pending' then
  redis.call('LPUSH', pending, id)
elseif state == 'aggregating' then
  redis.call('ZADD', group_prefix .. group, ceiling(seconds, microseconds), id)
  redis.call('SADD', groups, group)
else
  redis.call('ZADD', scheduled, score, id)
end
return { 1, tick }
