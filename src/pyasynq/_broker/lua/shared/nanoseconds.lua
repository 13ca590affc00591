-- Return the time as text in nanoseconds; a Lua number could not hold it exactly.
local function nanoseconds(seconds, microseconds)
  return string.format('%d%06d000', seconds, microseconds)
end
