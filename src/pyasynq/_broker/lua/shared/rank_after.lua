-- Return the rank of the first member of a sorted set that comes after a score and an id, in descending
-- order. If the id is gone, the place is found by bisection among the members with this score.
-- Uses: is_before
local function rank_after(collection, score, id)
  local rank = redis.call('ZREVRANK', collection, id)
  if rank and tonumber(redis.call('ZSCORE', collection, id)) == tonumber(score) then
    return rank + 1
  end
  local first = redis.call('ZCOUNT', collection, '(' .. score, '+inf')
  local last = redis.call('ZCOUNT', collection, score, '+inf')
  while first < last do
    local middle = math.floor((first + last) / 2)
    if is_before(redis.call('ZREVRANGE', collection, middle, middle)[1], id) then
      last = middle
    else
      first = middle + 1
    end
  end
  return first
end
