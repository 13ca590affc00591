#!lua flags=allow-oom
-- Put the members of stale aggregation sets back into their groups.
-- KEYS[1] groups: set of the names of groups
-- KEYS[2] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2] limit: largest number of sets
-- ARGV[3] enough: number of members after which the next set is left to another call
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- Returns: number of sets and of members put back, and 1 if there may be more stale sets
-- Uses: now

local groups, aggregation_sets = unpack(KEYS)
local group_prefix, limit, enough, now_seconds, now_microseconds = unpack(ARGV)

local seconds = now(now_seconds, now_microseconds)
local stale = redis.call('ZRANGEBYSCORE', aggregation_sets, '-inf', seconds, 'LIMIT', 0, limit)
local sets, members = 0, 0
for _, set in ipairs(stale) do
  if members >= tonumber(enough) then
    return { sets, members, 1 }
  end
  redis.call('ZREM', aggregation_sets, set)
  sets = sets + 1
  local is_set = string.sub(set, 1, #group_prefix) == group_prefix
  local group = is_set and string.match(string.sub(set, #group_prefix + 1), '^(.+):[^:]+$')
  local entries = group and redis.call('ZRANGE', set, 0, -1, 'WITHSCORES') or {}
  for i = 1, #entries, 2 do
    redis.call('ZADD', group_prefix .. group, entries[i + 1], entries[i])
  end
  if #entries > 0 then
    members = members + #entries / 2
    redis.call('SADD', groups, group)
    redis.call('DEL', set)
  end
end
return { sets, members, #stale == tonumber(limit) and 1 or 0 }
