-- Return the keys of the first aggregation sets of a queue, up to `most`; 0 for all. A key without the prefix
-- of the queue's groups is skipped: a cluster aborts a script that touches a key of another slot.
local function aggregation_set_keys(aggregation_sets, group_prefix, most)
  local keys = {}
  for _, key in ipairs(redis.call('ZRANGE', aggregation_sets, 0, most - 1)) do
    if string.sub(key, 1, #group_prefix) == group_prefix then
      keys[#keys + 1] = key
    end
  end
  return keys
end
