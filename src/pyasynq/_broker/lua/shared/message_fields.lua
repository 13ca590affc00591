-- Return the encoded fields of a message, in their order, and the number of each; nothing for bytes that are not a
-- message.
-- Uses: read_varint
local function message_fields(message)
  local position, fields, numbers = 1, {}, {}
  local fixed = { [1] = 8, [5] = 4 }
  while position <= #message do
    local first, tag = position, nil
    tag, position = read_varint(message, position)
    local kind = tag and tag % 8
    local length = fixed[kind or 0]
    if kind == 0 or kind == 2 then
      length, position = read_varint(message, position)
    end
    if kind == 0 then
      length = length and 0
    end
    if not length or position + length > #message + 1 then
      return nil
    end
    position = position + length
    fields[#fields + 1] = message:sub(first, position - 1)
    numbers[#numbers + 1] = math.floor(tag / 8)
  end
  return fields, numbers
end
