-- Return the positions of an id among the first and the last `walk` ids of a list; positions near the end
-- come last.
local function list_positions(list, id, walk)
  local positions, known = {}, {}
  for _, rank in ipairs({ 1, -1 }) do
    for _, position in ipairs(redis.call('LPOS', list, id, 'RANK', rank, 'COUNT', 0, 'MAXLEN', walk)) do
      if not known[position] then
        known[position] = true
        positions[#positions + 1] = position
      end
    end
  end
  return positions
end
