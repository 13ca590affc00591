-- Return all that is stored about a task. First come the keys of its collections and its score in each, empty
-- for lists; a list is repeated for each occurrence. Then come the values of its hash, its lease (`held`,
-- `over` or empty), and a digest of all these. Last come its positions in pending and in active, of which
-- only the ends are searched. `listed` is how often the id was counted in the whole of both lists.
-- Uses: list_positions, aggregation_set_keys
local function task_places(places, id, seen_in, listed, seconds)
  local values = redis.call('HMGET', places.task_prefix .. id, 'msg', 'state', 'group', 'unique_key', 'x:attempt',
    'x:group', 'pending_since', 'x:crashes')
  local found, scores, positions = {}, {}, {}
  for at, list in ipairs({ places.pending, places.active }) do
    positions[at] = list_positions(list, id, places.walk)
    for _ = 1, math.max(listed[at], #positions[at]) do
      found[#found + 1] = list
      scores[#scores + 1] = ''
    end
  end
  local sets = aggregation_set_keys(places.aggregation_sets, places.group_prefix, 0)
  for _, set in ipairs({ places.scheduled, places.retry, places.archived, places.completed,
    places.group_prefix .. (values[3] or ''), seen_in }) do
    sets[#sets + 1] = set
  end
  local looked_at = { [''] = true }
  for _, set in ipairs(sets) do
    local score = not looked_at[set] and redis.call('ZSCORE', set, id)
    if score then
      found[#found + 1] = set
      scores[#scores + 1] = score
    end
    looked_at[set] = true
  end
  local until_when = redis.call('ZSCORE', places.lease, id)
  local held = until_when and (tonumber(until_when) > seconds and 'held' or 'over') or ''
  local parts = { held, table.concat(found, '\n'), table.concat(scores, '\n') }
  for at = 1, 8 do
    parts[#parts + 1] = values[at] and #values[at] .. values[at] or '-'
  end
  return found, scores, values, held, redis.sha1hex(table.concat(parts, '\n')), positions
end
