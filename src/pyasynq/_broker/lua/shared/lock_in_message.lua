-- Return the lock that a message names (field 10), or an empty string.
-- Uses: message_fields
local function lock_in_message(message)
  local fields, numbers = message_fields(message)
  for at, field in ipairs(fields or {}) do
    if numbers[at] == 10 then
      local length_end = 2
      while field:byte(length_end) >= 128 do
        length_end = length_end + 1
      end
      return field:sub(length_end + 1)
    end
  end
  return ''
end
