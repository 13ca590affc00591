-- Takes out of `active` and `lease` the tasks whose claims (id, token, lease_score, in ARGV from `first` on,
-- every `stride`) hold. Returns the positions in ARGV of those, and the ids of the others. On a replay, an id
-- that the first run settled (its hash is gone, or in the wanted state) is in neither list.
local function take_claimed(active, lease, task_prefix, replay, wanted_state, first, stride)
  local ids, held, held_ids, refused = {}, {}, {}, {}
  for at = first, #ARGV, stride do
    ids[#ids + 1] = ARGV[at]
  end
  local scores = redis.call('ZMSCORE', lease, unpack(ids))
  for i, id in ipairs(ids) do
    local at = first + (i - 1) * stride
    local task = task_prefix .. id
    local later = scores[i] and tonumber(scores[i]) > tonumber(ARGV[at + 2])
    -- LREM answers whether the task is active, from the end where long-lived ones stand; it is also the
    -- first write, and one that Redis 6.2 allows when it is full.
    if redis.call('HGET', task, 'x:attempt') == ARGV[at + 1] and not later
        and redis.call('LREM', active, -1, id) == 1 then
      held[#held + 1] = at
      held_ids[#held_ids + 1] = id
    else
      local state = replay == '1' and (redis.call('HGET', task, 'state') or wanted_state)
      if state ~= wanted_state then
        refused[#refused + 1] = id
      end
    end
  end
  if #held > 0 then
    redis.call('ZREM', lease, unpack(held_ids))
  end
  return held, refused
end
