#!lua flags=allow-oom
-- Add unlisted groups to `groups`, put members of unlisted sets back, and remove entries without members.
-- KEYS[1] groups: set of the names of groups
-- KEYS[2] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- ARGV[1] group_prefix: prefix of group keys, before the name
-- ARGV[2] limit: largest number of members of a set to put back
-- ARGV[3...] key, group: for each group or set, with the group that its members belong to
-- Returns: the keys that need another call

local groups, aggregation_sets = unpack(KEYS)
local group_prefix, limit = unpack(ARGV, 1, 2)

local unfinished = {}
for at = 3, #ARGV, 2 do
  local key, group = ARGV[at], ARGV[at + 1]
  local name = string.sub(key, #group_prefix + 1)
  local is_own = key == group_prefix .. name
  local is_listed = redis.call('SISMEMBER', groups, name) == 1 or redis.call('ZSCORE', aggregation_sets, key)
  if not is_own then
    redis.call('ZREM', aggregation_sets, key)
  elseif redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', aggregation_sets, key)
    redis.call('SREM', groups, name)
  elseif not is_listed then
    -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
    redis.call('ZREM', aggregation_sets, key)
    redis.call('SADD', groups, group)
    local target = group_prefix .. group
    if key ~= target then
      local members = redis.call('ZRANGE', key, 0, limit - 1, 'WITHSCORES')
      for i = 1, #members, 2 do
        redis.call('ZADD', target, members[i + 1], members[i])
        redis.call('ZREM', key, members[i])
      end
      if redis.call('EXISTS', key) == 1 then
        unfinished[#unfinished + 1] = key
      end
    end
  end
end
return unfinished
