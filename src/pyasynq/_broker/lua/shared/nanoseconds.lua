-- Returns the time as text in nanoseconds; a number of Lua could not hold it exactly.
local function nanoseconds(seconds, microseconds)
  return string.format('%d%06d000', seconds, microseconds)
end
