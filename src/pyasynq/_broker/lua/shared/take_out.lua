-- Remove a task from the collection of its state. `places` holds the keys of the collections, of `groups` and
-- of `aggregation_sets`, and the two prefixes. Return the task's fields if it was removed; otherwise nil and
-- the reason. The reason is `missing`; `aggregated` for a member of an aggregation set (unless `with_sets`);
-- or the state of the task. A state is refused if it is `active`, `refused`, or not `from_state` (unless that
-- is empty). Tasks in `places.taken` have been removed from pending already. Fields that `read_places` has
-- read are used once.
-- Uses: aggregation_set_keys
local function take_out(places, id, from_state, refused, with_sets)
  local fields = places.fields and places.fields[id]
  if fields then
    places.fields[id] = nil
  else
    fields = redis.call('HMGET', places.task_prefix .. id, 'msg', 'state', 'group', 'unique_key')
  end
  local state, group = fields[2], places.group_prefix .. (fields[3] or '')
  if not fields[1] or not state then
    return nil, 'missing'
  end
  if state == 'active' or state == refused or (from_state ~= '' and state ~= from_state) then
    return nil, state
  end
  if state == 'pending' then
    if not (places.taken and places.taken[id]) then
      redis.call('LREM', places.pending, -1, id)
    end
  elseif state == 'aggregating' and redis.call('ZREM', group, id) == 1 then
    if redis.call('EXISTS', group) == 0 then
      redis.call('SREM', places.groups, fields[3])
    end
  elseif state == 'aggregating' then
    for _, set in ipairs(aggregation_set_keys(places.aggregation_sets, places.group_prefix, 0)) do
      if redis.call('ZSCORE', set, id) then
        if not with_sets then
          return nil, 'aggregated'
        end
        redis.call('ZREM', set, id)
        if redis.call('EXISTS', set) == 0 then
          redis.call('ZREM', places.aggregation_sets, set)
        end
      end
    end
  elseif places[state] then
    redis.call('ZREM', places[state], id)
  else
    return nil, state
  end
  return fields
end
