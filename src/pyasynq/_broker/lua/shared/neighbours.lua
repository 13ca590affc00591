-- Return the neighbours of each task that `find_pending` has found, by id, for putting the task back (undo).
-- They are the nearest id to its left that is not taken out, and the id to its right; empty at an end. A
-- third value, the score, is empty. `seen` holds ids of the list by position.
local function neighbours(list, found, seen)
  local function id_at(position)
    if position < 0 then
      return ''
    end
    return seen[position] or redis.call('LINDEX', list, position) or ''
  end

  local around, before = {}, nil
  for _, one in ipairs(found) do
    local left
    if before and before.position == one.position - 1 then
      left = around[before.id][1]
    else
      left = id_at(one.position - 1)
    end
    around[one.id] = { left, id_at(one.position + 1), '' }
    before = one
  end
  return around
end
