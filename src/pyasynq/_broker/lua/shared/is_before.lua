-- Return whether one text sorts before another as bytes; Lua's own comparison follows the locale.
local function is_before(one, other)
  for at = 1, math.min(#one, #other) do
    local left, right = one:byte(at), other:byte(at)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end
