-- Returns how many ids of a list are right of a place, which is told by ids before and after it; nil if none
-- of them is within `reach` ids of where `expected` ids are right of it. Ids that were taken and put back may
-- be on the wrong side, so the place is where most are on their own.
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
