#!lua flags=allow-oom
-- Read the facts of groups and aggregation sets.
-- KEYS[1] groups: set of the names of groups
-- KEYS[2] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3...] key: for each group or set
-- Returns: members, 1 if it is listed as a group, 1 if it is listed as a set, and the group that a member names, for each key

local groups, aggregation_sets = unpack(KEYS)
local task_prefix, group_prefix = unpack(ARGV, 1, 2)

local reply = {}
for at = 3, #ARGV, 1 do
  local key = ARGV[at]
  local named = false
  for _, id in ipairs(redis.call('ZRANGE', key, 0, 9)) do
    named = named or redis.call('HGET', task_prefix .. id, 'group')
  end
  reply[#reply + 1] = redis.call('ZCARD', key)
  reply[#reply + 1] = redis.call('SISMEMBER', groups, string.sub(key, #group_prefix + 1))
  reply[#reply + 1] = redis.call('ZSCORE', aggregation_sets, key) and 1 or 0
  reply[#reply + 1] = named or ''
end
return reply
