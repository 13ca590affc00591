-- Returns the keys of a queue's aggregation sets. A name that does not begin like the keys of its groups is none: a
-- script that touches a key of another slot is broken off by a cluster.
local function aggregation_set_keys(aggregation_sets, group_prefix)
  local keys = {}
  for _, key in ipairs(redis.call('ZRANGE', aggregation_sets, 0, -1)) do
    if string.sub(key, 1, #group_prefix) == group_prefix then
      keys[#keys + 1] = key
    end
  end
  return keys
end
