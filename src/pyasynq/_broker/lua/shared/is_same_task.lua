-- Return whether a stored message is the one that was enqueued, apart from the fields that attempts change: how
-- often it was retried (6), its error (7), when it failed (11) and when it was completed (13).
-- Uses: message_fields
local function is_same_task(stored, message)
  local fields, numbers = message_fields(stored or '')
  if stored == message or not fields then
    return stored == message
  end
  local added, kept = { [6] = true, [7] = true, [11] = true, [13] = true }, {}
  for at, field in ipairs(fields) do
    if not added[numbers[at]] then
      kept[#kept + 1] = field
    end
  end
  return table.concat(kept) == message
end
