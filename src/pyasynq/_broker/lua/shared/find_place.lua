-- Find a place between two ids of a list; return the number of ids to its right. `sides` says of ids whether
-- they were before or after the place. `expected` is the number of ids that should be to its right; nil is
-- returned if none of the ids in `sides` is within `reach` ids of that place. Ids that were taken and put
-- back may be on the wrong side, so the place with most ids on the right side wins.
local function find_place(collection, sides, expected, reach)
  local right = math.max(0, expected - reach)
  local ids = redis.call('LRANGE', collection, -expected - reach, -right - 1)
  local seen = {}
  for i, id in ipairs(ids) do
    if sides[id] then
      seen[#seen + 1] = { side = sides[id], right = right + #ids - i }
    end
  end
  local best, best_votes = nil, -1
  for _, one in ipairs(seen) do
    local place = one.side == 'before' and one.right or one.right + 1
    local votes = 0
    for _, other in ipairs(seen) do
      if (other.side == 'before') == (other.right >= place) then
        votes = votes + 1
      end
    end
    if votes > best_votes then
      best, best_votes = place, votes
    end
  end
  return best
end
