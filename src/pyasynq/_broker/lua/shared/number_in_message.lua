-- Return the number in a field of a protobuf message, or the length of the field's bytes; 0 if the field is
-- missing. Return nil for a message or number that a script cannot read. If a field occurs twice, the last
-- one counts, as in protobuf. A search calls this function for each task: so numbers of one, two or five
-- bytes are read with one call of `string.byte`.
-- Uses: read_varint
local function number_in_message(message, wanted)
  local at, found, byte = 1, 0, string.byte
  local as_number, as_bytes = wanted * 8, wanted * 8 + 2
  while true do
    local tag, a, b, c, d, e = byte(message, at, at + 5)
    if not tag then
      return found
    end
    local value
    if tag < 128 and a and a < 128 then
      value, at = a, at + 2
    elseif tag < 128 and b and b < 128 then
      value, at = a + b * 128 - 128, at + 3
    elseif tag < 128 and e and c >= 128 and d >= 128 and e < 128 then
      value, at = a + b * 128 + c * 16384 + d * 2097152 + e * 268435456 - 270549120, at + 6
    else
      tag, at = read_varint(message, at)
      if tag then
        value, at = read_varint(message, at)
      end
      if not value or tag >= 2 ^ 53 or value >= 2 ^ 53 then
        return nil
      end
    end
    local kind = tag % 8
    if kind ~= 0 and kind ~= 2 then
      return nil
    end
    if tag == as_number or tag == as_bytes then
      found = value
    end
    if kind == 2 then
      at = at + value
    end
  end
end
