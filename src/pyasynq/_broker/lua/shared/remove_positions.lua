-- Remove the ids at some ascending positions of a list. All those nearer to one end get the same id, so that one
-- walk from that end removes them.
local function remove_positions(list, positions)
  local middle = redis.call('LLEN', list) / 2
  local left, right = {}, {}
  for _, position in ipairs(positions) do
    local side = position < middle and left or right
    side[#side + 1] = position
  end
  if #left > 1 or #right > 1 then
    -- A full Redis 6.2 refuses a script whose first write is LSET; LREM is allowed. This write changes nothing.
    redis.call('LTRIM', list, 0, -1)
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
