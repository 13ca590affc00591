-- Returns the keys of the collections that a task is in, with a list as often as the id stands in it; the values
-- of its hash; what its lease is: `held`, `over` or empty; and a digest that changes whenever one of these does.
local function task_places(places, id, seen_in, seconds)
  local values = redis.call('HMGET', places.task_prefix .. id, 'msg', 'state', 'group', 'unique_key', 'x:attempt',
    'x:group', 'pending_since', 'x:crashes')
  local found = {}
  for _, list in ipairs({ places.pending, places.active }) do
    for _ = 1, #redis.call('LPOS', list, id, 'COUNT', 0) do
      found[#found + 1] = list
    end
  end
  local sets = redis.call('ZRANGE', places.aggregation_sets, 0, -1)
  for _, set in ipairs({ places.scheduled, places.retry, places.archived, places.completed,
    places.group_prefix .. (values[3] or ''), seen_in }) do
    sets[#sets + 1] = set
  end
  local looked_at = { [''] = true }
  for _, set in ipairs(sets) do
    if not looked_at[set] and redis.call('ZSCORE', set, id) then
      found[#found + 1] = set
    end
    looked_at[set] = true
  end
  local score = redis.call('ZSCORE', places.lease, id)
  local held = score and (tonumber(score) > seconds and 'held' or 'over') or ''
  local parts = { held, table.concat(found, '\n') }
  for at = 1, 8 do
    parts[#parts + 1] = values[at] and #values[at] .. values[at] or '-'
  end
  return found, values, held, redis.sha1hex(table.concat(parts, '\n'))
end
