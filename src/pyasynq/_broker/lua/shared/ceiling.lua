-- Return the first whole second that is not before this time.
local function ceiling(seconds, microseconds)
  return microseconds > 0 and seconds + 1 or seconds
end
