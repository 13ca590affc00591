-- Return the encoded fields of a message, in their order, and the number of each; nothing for bytes that are not a
-- message.
local function message_fields(message)
  local position, fields, numbers = 1, {}, {}
  local function number()
    local value, weight = 0, 1
    repeat
      local byte = message:byte(position)
      if not byte then
        return nil
      end
      position = position + 1
      value = value + byte % 128 * weight
      weight = weight * 128
    until byte < 128
    return value
  end
  local fixed = { [1] = 8, [5] = 4 }
  while position <= #message do
    local first = position
    local tag = number()
    local kind = tag and tag % 8
    local length = fixed[kind or 0]
    if kind == 0 then
      length = number() and 0
    elseif kind == 2 then
      length = number()
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
