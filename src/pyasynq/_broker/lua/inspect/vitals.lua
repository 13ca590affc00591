#!lua flags=no-writes
-- Reads what shows that tasks of a queue are stuck.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] scheduled: sorted set of ids by the second they are due
-- KEYS[4] retry: sorted set of ids by the second they are due
-- KEYS[5] paused: the second since when; there while the queue is paused
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- KEYS[8] objectives: hash of the queue's objectives
-- ARGV[1] group_prefix: key of a group without the name at its end
-- ARGV[2] now_seconds: empty for the clock of Redis
-- ARGV[3] now_microseconds: within the second
-- ARGV[4] late: seconds after which something that is due counts as late
-- ARGV[5] group_late: seconds after its newest member joined from which a group counts as late
-- ARGV[6] most_groups: groups to look at
-- Returns: active tasks, leases, leases that lapsed late ago, scheduled tasks that are late, second of the first one (empty for none), retry tasks that are late, second of the first one, second of the pause, groups that were looked at, how many of them are late, tasks in the late ones, sets that are late, and the objective of the wait
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
