-- Return the number in a field of a protobuf message, or the length of its bytes; 0 if it is not there, nil for a
-- message or number that a script cannot read. If a field occurs twice, the last one counts, as in protobuf.
local function number_in_message(message, wanted)
  local at, found, byte = 1, 0, string.byte

  local function varint()
    local value, factor = 0, 1
    repeat
      local part = byte(message, at)
      if not part or factor > 2 ^ 49 then
        return nil
      end
      at = at + 1
      value = value + part % 128 * factor
      factor = factor * 128
    until part < 128
    return value
  end

  while byte(message, at) do
    local tag = varint()
    local kind = tag and tag % 8
    local value = (kind == 0 or kind == 2) and varint()
    if not value then
      return nil
    end
    if (tag - kind) / 8 == wanted then
      found = value
    end
    if kind == 2 then
      at = at + value
    end
  end
  return found
end
