-- Return the value of a task type in a statistics hash, with packed counts added to the record of a slot. If
-- the slot is newer than the last record, that record is closed and a new one begins. Counts of an earlier
-- slot are added to the last record.
-- Uses: read_numbers, write_numbers
local function add_record(value, level, numbers, summary_size, vector_size)
  local closed, slot, record = '', level.slot, nil
  local high, low, newest = string.byte(value or '', 1, 2)
  local opened = low and high * 256 + low or 0
  newest = opened > 2 and string.byte(value, opened)
  if newest then
    closed = string.sub(value, 3, opened - 1)
    record = read_numbers(string.sub(value, opened + 1), level.size)
    if newest < slot then
      local body = write_numbers(record, level.size, summary_size)
      closed = closed .. string.char(newest, #body) .. body
      record = nil
    else
      slot = newest
    end
  end
  record = record or {}
  for at, number in pairs(read_numbers(numbers, vector_size)) do
    if at <= level.size then
      record[at] = (record[at] or 0) + number
    end
  end
  opened = #closed + 3
  return string.char(math.floor(opened / 256), opened % 256)
    .. closed
    .. string.char(slot)
    .. write_numbers(record, level.size, vector_size)
end
