-- Returns a message with these encoded fields in place of its payload (2) and headers (15), all others untouched,
-- and the field that holds its type (1); nothing for bytes that are no message.
local function splice_message(message, fields)
  local position, kept, type_field = 1, {}, ''
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
    local field = math.floor(tag / 8)
    if field == 1 then
      type_field = message:sub(first, position - 1)
    end
    if field ~= 2 and field ~= 15 then
      kept[#kept + 1] = message:sub(first, position - 1)
    end
  end
  return table.concat(kept) .. fields, type_field
end
