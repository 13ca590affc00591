-- Remove the tasks that `find_pending` has found from pending, and record them in `places.taken` for
-- `take_out`.
-- Uses: remove_positions
local function take_pending(places, found)
  local positions = {}
  places.taken = {}
  for i, one in ipairs(found) do
    positions[i] = one.position
    places.taken[one.id] = true
  end
  if #positions > 0 then
    remove_positions(places.pending, positions)
  end
end
