-- Return the positions of some ids in a list, from its left end, by id; nil if one of them is not found.
-- Return also the ids that were seen during the search, by position. Each id is first searched for at its
-- hint: its expected distance to the right of the id `anchor`. Other ids are then searched for near both ends
-- of the list. With `everywhere`, the whole list is searched, and ids may be missing in the result.
local function find_positions(list, ids, anchor, hints, everywhere)
  local length = redis.call('LLEN', list)
  local positions, seen, missing, wanted = {}, {}, #ids, {}
  for _, id in ipairs(ids) do
    wanted[id] = true
  end

  local function note(id, position)
    if position and wanted[id] then
      wanted[id] = nil
      positions[id] = position
      missing = missing - 1
    end
  end

  local function look(first, last)
    first, last = math.max(0, first), math.max(0, last)
    for offset, id in ipairs(redis.call('LRANGE', list, first, last)) do
      local position = first + offset - 1
      seen[position] = id
      note(id, position)
    end
  end

  -- Return the lowest and the highest hint of the ids from the `at`th on that were side by side.
  local function hinted_range(at)
    local hint = hints[ids[at]]
    local low, high = hint, hint
    for following = at + 1, math.min(at + 100, #ids) do
      local other = hints[ids[following]]
      if not other or math.abs(other - hint) > 4 then
        break
      end
      hint, low, high = other, math.min(low, other), math.max(high, other)
    end
    return low, high
  end

  local shift = anchor ~= '' and redis.call('LPOS', list, anchor, 'MAXLEN', 100000) or 0
  for at, id in ipairs(ids) do
    local hint = hints[id]
    if hint and wanted[id] then
      local low, high = hinted_range(at)
      look(low + shift - 4, high + shift + 4)
    end
    if hint and wanted[id] then
      look(hint + shift - 250, hint + shift + 250)
    end
    if hint and wanted[id] then
      -- The other ids have probably moved by as much.
      break
    elseif hint then
      -- Other calls have removed ids: all ids to the right of those have shifted.
      shift = positions[id] - hint
    end
  end

  local reach = 100000
  if missing > 3 then
    -- Redis compares 100,000 ids in a millisecond, and hands out 5,000 to a script.
    for _, tried in ipairs({ 2 * #ids, 1000 }) do
      if missing > 0 then
        reach = tried
        look(length - reach, length)
        look(0, math.min(reach, length - reach) - 1)
      end
    end
  else
    for _, id in ipairs(ids) do
      note(id, wanted[id] and redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', reach))
      note(id, wanted[id] and redis.call('LPOS', list, id, 'MAXLEN', reach))
    end
  end
  if everywhere then
    for _, id in ipairs(ids) do
      note(id, wanted[id] and redis.call('LPOS', list, id))
    end
  elseif missing > 0 and 2 * reach < length then
    return nil
  end
  return positions, seen
end
