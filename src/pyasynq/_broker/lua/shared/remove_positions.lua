-- Remove the ids at some ascending positions of a list. Ids at the ends are cut off by LTRIM. The others are
-- overwritten with one id for each half of the list, so that one LREM from each end removes them.
local function remove_positions(list, positions)
  local length = redis.call('LLEN', list)
  local first, last = 1, #positions
  while positions[first] == first - 1 do
    first = first + 1
  end
  while last >= first and positions[last] == length - 1 - #positions + last do
    last = last - 1
  end
  local cut = first - 1
  -- A full Redis 6.2 refuses a script whose first write is LSET; LTRIM is allowed, also if it changes nothing.
  redis.call('LTRIM', list, cut, last - #positions - 1)
  local middle = (length + cut + last - #positions) / 2
  local left, right = {}, {}
  for i = first, last do
    local side = positions[i] < middle and left or right
    side[#side + 1] = positions[i] - cut
  end
  for _, side in ipairs({ left, right }) do
    side.id = side[1] and redis.call('LINDEX', list, side[1])
    for i = 2, #side do
      redis.call('LSET', list, side[i], side.id)
    end
  end
  if left.id then
    redis.call('LREM', list, #left, left.id)
  end
  if right.id then
    redis.call('LREM', list, -#right, right.id)
  end
end
