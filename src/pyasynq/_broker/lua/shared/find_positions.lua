-- Return the positions of some ids in a list, counted from its left end, by id; nil if one of them is not found.
-- First an id is looked for where `hints` tells: how far it was right of the id `anchor`. Then all are looked for
-- near both ends, and `everywhere` if that is asked for. In a list that was looked through, an id may be missing.
local function find_positions(list, ids, anchor, hints, everywhere)
  local length = redis.call('LLEN', list)
  local positions, missing, wanted = {}, #ids, {}
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
      note(id, first + offset - 1)
    end
  end

  local shift = anchor ~= '' and redis.call('LPOS', list, anchor, 'MAXLEN', 100000) or 0
  for _, id in ipairs(ids) do
    local hint = hints[id]
    for _, reach in ipairs({ 4, 250 }) do
      if hint and wanted[id] then
        look(hint + shift - reach, hint + shift + reach)
      end
    end
    if hint and wanted[id] then
      -- So are all others, probably.
      break
    elseif hint then
      -- Removals by others move all ids that are further right.
      shift = positions[id] - hint
    end
  end

  local seen = 100000
  if missing > 3 then
    -- Redis compares 100,000 ids in a millisecond, and hands out 5,000 to a script.
    seen = 1000
    look(length - seen, length)
    look(0, math.min(seen, length - seen) - 1)
  else
    for _, id in ipairs(ids) do
      note(id, wanted[id] and redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', seen))
      note(id, wanted[id] and redis.call('LPOS', list, id, 'MAXLEN', seen))
    end
  end
  if everywhere then
    for _, id in ipairs(ids) do
      note(id, wanted[id] and redis.call('LPOS', list, id))
    end
  elseif missing > 0 and 2 * seen < length then
    return nil
  end
  return positions
end
