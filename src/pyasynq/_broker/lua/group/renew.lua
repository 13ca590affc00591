#!lua flags=allow-oom
-- Move the deadlines of aggregation sets, and list the groups of sets that were reclaimed.
-- KEYS[1] groups: set of the names of groups
-- KEYS[2] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2] timeout: seconds after which the sets are stale
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- ARGV[5...] group, set: for each set
-- Returns: the keys of sets that are gone
-- Uses: now, ceiling

local groups, aggregation_sets = unpack(KEYS)
local group_prefix, timeout, now_seconds, now_microseconds = unpack(ARGV, 1, 4)

local stale_at = ceiling(now(now_seconds, now_microseconds)) + timeout
local lost = {}
for at = 5, #ARGV, 2 do
  local group, set = ARGV[at], ARGV[at + 1]
  -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
  if redis.call('ZREM', aggregation_sets, set) == 1 then
    redis.call('ZADD', aggregation_sets, stale_at, set)
  else
    lost[#lost + 1] = set
    -- Go's recoverer puts members back without adding the group to `groups`.
    if redis.call('EXISTS', group_prefix .. group) == 1 then
      redis.call('SADD', groups, group)
    end
  end
end
return lost
