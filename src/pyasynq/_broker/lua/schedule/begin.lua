-- Tells the last tick of entries and since when each counts; one that is new counts from now on.
-- KEYS[1] ticks: hash of the last tick of each entry, and of `<entry>:since`
-- ARGV[1] now_seconds: empty for the clock of Redis
-- ARGV[2] now_microseconds: within the second
-- ARGV[3...] entry: for each id
-- Returns: seconds, microseconds, and for each entry its last tick (empty for none) and since
-- Uses: now

local ticks = KEYS[1]
local now_seconds, now_microseconds = unpack(ARGV, 1, 2)

local seconds, microseconds = now(now_seconds, now_microseconds)
local found = { seconds, microseconds }
for at = 3, #ARGV, 1 do
  local entry = ARGV[at]
  local tick, since = unpack(redis.call('HMGET', ticks, entry, entry .. ':since'))
  if not since then
    redis.call('HSET', ticks, entry .. ':since', seconds)
  end
  found[#found + 1] = tick or ''
  found[#found + 1] = since or seconds
end
return found
