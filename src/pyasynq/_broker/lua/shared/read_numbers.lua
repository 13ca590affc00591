-- Return the counts of a packed vector that are not 0, by position. A mask of `size` bits says which
-- positions these are; the counts follow as varints (LEB128), the low seven bits first.
local function read_numbers(data, size)
  local numbers = {}
  local at = math.ceil(size / 8) + 1
  for place = 1, size do
    local mask = string.byte(data, math.ceil(place / 8)) or 0
    if math.floor(mask / 2 ^ ((place - 1) % 8)) % 2 == 1 then
      local number, factor = 0, 1
      local byte
      repeat
        byte = string.byte(data, at) or 0
        number = number + byte % 128 * factor
        factor = factor * 128
        at = at + 1
      until byte < 128
      numbers[place] = number < 2 ^ 53 and number or 0
    end
  end
  return numbers
end
