#!lua flags=no-writes
-- Count the tasks of a queue.
-- KEYS[1] pending: list of ids
-- KEYS[2] active: list of ids
-- KEYS[3] scheduled: sorted set of ids by the second they are due
-- KEYS[4] retry: sorted set of ids by the second they are due
-- KEYS[5] archived: sorted set of ids by the second they were archived
-- KEYS[6] completed: sorted set of ids by the second they are to be deleted
-- KEYS[7] groups: set of the names of groups
-- KEYS[8] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- KEYS[9] processed_today: number of attempts that ended this day
-- KEYS[10] failed_today: number of attempts that failed this day
-- KEYS[11] processed: number of attempts that ended
-- KEYS[12] failed: number of attempts that failed
-- KEYS[13] paused: exists while the queue is paused
-- KEYS[14] limits: hash of settings
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- Returns: tasks in the six states, tasks in groups (-1 if there are more than 1,000 of them), tasks in sets of groups, groups, the four counters, number of scheduled and retry tasks that are due, paused, milliseconds until the pause ends (negative if it is not to end by itself), latency in microseconds, and concurrency, rate, period, burst and ordered as they are stored
-- Uses: aggregation_set_keys, count_grouped

local pending, active, scheduled, retry, archived, completed, groups, aggregation_sets, processed_today,
  failed_today, processed, failed, paused, limits = unpack(KEYS)
local task_prefix, group_prefix, now_seconds, now_microseconds = unpack(ARGV)

local waiting = redis.call('LLEN', pending)
local later, again = redis.call('ZCARD', scheduled), redis.call('ZCARD', retry)
if now_seconds == '' and waiting + later + again > 0 then
  now_seconds, now_microseconds = unpack(redis.call('TIME'))
end
local due, latency = 0, 0
if later > 0 then
  due = redis.call('ZCOUNT', scheduled, '-inf', now_seconds)
end
if again > 0 then
  due = due + redis.call('ZCOUNT', retry, '-inf', now_seconds)
end
if waiting > 0 then
  local since = tonumber(redis.call('HGET', task_prefix .. redis.call('LINDEX', pending, -1), 'pending_since') or '')
  if since then
    latency = math.max(now_seconds * 1000000 + now_microseconds - since / 1000, 0)
  end
end
local grouped, number = count_grouped(groups, group_prefix, 1000)
local staged = 0
-- There are few sets: each server aggregates only a few at a time.
for _, set in ipairs(aggregation_set_keys(aggregation_sets, group_prefix, 1000)) do
  staged = staged + redis.call('ZCARD', set)
end
local left = redis.call('PTTL', paused)
return {
  waiting,
  redis.call('LLEN', active),
  later,
  again,
  redis.call('ZCARD', archived),
  redis.call('ZCARD', completed),
  grouped,
  staged,
  number,
  redis.call('GET', processed_today) or '0',
  redis.call('GET', failed_today) or '0',
  redis.call('GET', processed) or '0',
  redis.call('GET', failed) or '0',
  due,
  left == -2 and 0 or 1,
  left,
  latency,
  redis.call('HMGET', limits, 'concurrency', 'rate', 'period', 'burst', 'ordered'),
}
