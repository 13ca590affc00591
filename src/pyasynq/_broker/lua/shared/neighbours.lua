-- Return, by id, the ids to the left and to the right of each task that `find_pending` has found, empty at an end. They
-- are those it has when the tasks to its left are gone and those to its right are there, and a score, which is empty.
local function neighbours(list, found)
  local around, before = {}, nil
  for _, one in ipairs(found) do
    local first = math.max(one.position - 1, 0)
    local ids = redis.call('LRANGE', list, first, one.position + 1)
    local at = one.position - first
    local left = ids[at] or ''
    if before and before.position == one.position - 1 then
      left = around[before.id][1]
    end
    around[one.id] = { left, ids[at + 2] or '', '' }
    before = one
  end
  return around
end
