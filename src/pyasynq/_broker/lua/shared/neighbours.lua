-- Return, by id, the ids to the left and to the right of each task that `find_pending` has found, empty at an end. They
-- are those it has when the tasks to its left are gone and those to its right are there, and a score, which is empty.
-- `seen` holds ids of the list by position.
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
