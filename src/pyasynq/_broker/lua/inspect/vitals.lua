#!lua flags=no-writes
-- Read the signs of stuck tasks in a queue.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] scheduled: sorted set of ids by the second they are due
-- KEYS[4] retry: sorted set of ids by the second they are due
-- KEYS[5] paused: Unix second at which the pause began; exists while the queue is paused
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- KEYS[8] objectives: hash of the queue's objectives
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2] now_seconds: empty for Redis' clock
-- ARGV[3] now_microseconds: within the second
-- ARGV[4] late: seconds after which something that is due counts as late
-- ARGV[5] group_late: seconds after its newest member joined from which a group counts as late
-- ARGV[6] most_groups: largest number of groups to examine
-- Returns: active tasks, leases, leases that lapsed more than `late` seconds ago, late scheduled tasks, due time of the first scheduled task (empty for none), late retry tasks, due time of the first retry task, time at which the pause began, groups examined, late groups among them, tasks in the late groups, late aggregation sets, and the wait objective
-- Uses: now

local active, lease, scheduled, retry, paused, groups, aggregation_sets, objectives = unpack(KEYS)
local group_prefix, now_seconds, now_microseconds, late, group_late, most_groups = unpack(ARGV)

local seconds = now(now_seconds, now_microseconds)
local limit, group_limit = seconds - late, seconds - group_late

local function first(sorted_set)
  return redis.call('ZRANGE', sorted_set, 0, 0, 'WITHSCORES')[2] or ''
end

local late_groups, grouped = 0, 0
local names = redis.call('SSCAN', groups, 0, 'COUNT', most_groups)[2]
local seen_groups = math.min(#names, most_groups)
for number = 1, seen_groups do
  local group = group_prefix .. names[number]
  local newest = redis.call('ZREVRANGE', group, 0, 0, 'WITHSCORES')[2]
  if newest and tonumber(newest) <= group_limit then
    late_groups = late_groups + 1
    grouped = grouped + redis.call('ZCARD', group)
  end
end
return {
  redis.call('LLEN', active),
  redis.call('ZCARD', lease),
  redis.call('ZCOUNT', lease, '-inf', limit),
  redis.call('ZCOUNT', scheduled, '-inf', limit),
  first(scheduled),
  redis.call('ZCOUNT', retry, '-inf', limit),
  first(retry),
  redis.call('GET', paused) or '',
  seen_groups,
  late_groups,
  grouped,
  redis.call('ZCOUNT', aggregation_sets, '-inf', limit),
  redis.call('HGET', objectives, 'wait') or '',
}
