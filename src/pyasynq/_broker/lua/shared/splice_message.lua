-- Return a message whose payload (field 2) and headers (15) are replaced by these encoded fields, and the
-- encoded field of its type (1). Return nil for bytes that are not a message.
-- Uses: message_fields
local function splice_message(message, new_fields)
  local fields, numbers = message_fields(message)
  if not fields then
    return nil
  end
  local kept, type_field = {}, ''
  for at, field in ipairs(fields) do
    if numbers[at] == 1 then
      type_field = field
    end
    if numbers[at] ~= 2 and numbers[at] ~= 15 then
      kept[#kept + 1] = field
    end
  end
  return table.concat(kept) .. new_fields, type_field
end
