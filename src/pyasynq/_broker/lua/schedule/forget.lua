#!lua flags=allow-oom
-- Remove the stored ticks of entries that have had none for long.
-- KEYS[1] ticks: hash of the last tick of each entry, and of `<entry>:since`
-- ARGV[1] before: Unix time; an entry stays if it had a tick or was new since then
-- ARGV[2...] entry: for each id
-- Returns: number of entries removed

local ticks = KEYS[1]
local before = unpack(ARGV, 1, 1)

local removed = 0
for at = 2, #ARGV, 1 do
  local entry = ARGV[at]
  local known = redis.call('HMGET', ticks, entry, entry .. ':since')
  if math.max(tonumber(known[1]) or 0, tonumber(known[2]) or 0) < tonumber(before) then
    redis.call('HDEL', ticks, entry, entry .. ':since', entry .. ':paused')
    removed = removed + 1
  end
end
return removed
