-- Return whether a text sorts before another one by its bytes; Lua's comparison depends on the locale.
local function is_before(one, other)
  for at = 1, math.min(#one, #other) do
    local left, right = one:byte(at), other:byte(at)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end
