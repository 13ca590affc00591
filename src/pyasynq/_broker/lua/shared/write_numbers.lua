-- Return a packed vector of `size` counts, which are given by position. A count at a position after `exact`
-- becomes one byte: it is exact up to 15, and above that a floating-point number with a mantissa of three
-- bits.
local function write_numbers(numbers, size, exact)
  local mask, body = {}, {}
  for index = 1, math.ceil(size / 8) do
    mask[index] = 0
  end
  for place = 1, size do
    local number = numbers[place] or 0
    if number > 0 then
      local index = math.ceil(place / 8)
      mask[index] = mask[index] + 2 ^ ((place - 1) % 8)
      if place <= exact then
        while number > 127 do
          body[#body + 1] = string.char(number % 128 + 128)
          number = math.floor(number / 128)
        end
      elseif number > 15 then
        local _, exponent = math.frexp(number)
        number = 8 * (exponent - 4) + math.floor(number / 2 ^ (exponent - 4))
      end
      body[#body + 1] = string.char(math.min(number, 255))
    end
  end
  return string.char(unpack(mask)) .. table.concat(body)
end
