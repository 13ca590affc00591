-- Return the variable-length number of a protobuf message at a position, and the position behind it; nil for one
-- that is cut off. A number from 2^53 on is not exact.
local function read_varint(message, at)
  local value, factor = 0, 1
  repeat
    local part = message:byte(at)
    if not part then
      return nil
    end
    at = at + 1
    value = value + part % 128 * factor
    factor = factor * 128
  until part < 128
  return value, at
end
