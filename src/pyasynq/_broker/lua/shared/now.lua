-- Return the time as two numbers; empty arguments mean Redis' clock.
local function now(seconds, microseconds)
  if seconds == '' then
    local time = redis.call('TIME')
    return tonumber(time[1]), tonumber(time[2])
  end
  return tonumber(seconds), tonumber(microseconds)
end
