-- Return the pending tasks among the ids in ARGV from `first` on, from left to right in the list, each with
-- `id` and `position`; empty if `from_state` is another state. Return also ids of the list that were seen, by
-- position. Return nil if a task cannot be found in a short time, see `find_positions`. `read_places` has
-- read the tasks.
-- Uses: find_positions
local function find_pending(places, first, from_state, anchor, hints)
  local ids, places_of, known = {}, {}, {}
  if from_state ~= '' and from_state ~= 'pending' then
    return ids, {}
  end
  local at = first
  for hint in hints:gmatch('%S+') do
    places_of[ARGV[at]] = tonumber(hint)
    at = at + 1
  end
  for i = first, #ARGV do
    local id = ARGV[i]
    local fields = places.fields[id]
    if fields[1] and fields[2] == 'pending' and not known[id] then
      known[id] = true
      ids[#ids + 1] = id
    end
  end
  if #ids == 0 then
    return ids, {}
  end
  local positions, seen = find_positions(places.pending, ids, anchor, places_of, hints == '*')
  if not positions then
    return nil
  end
  local found = {}
  for id, position in pairs(positions) do
    found[#found + 1] = { id = id, position = position }
  end
  table.sort(found, function(one, other)
    return one.position < other.position
  end)
  return found, seen
end
