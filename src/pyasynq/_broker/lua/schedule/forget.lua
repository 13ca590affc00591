#!lua flags=allow-oom
-- Remove the stored ticks of entries that have not fired since a time.
-- KEYS[1] ticks: hash of the last tick of each entry, and of `<entry>:since`
-- ARGV[1] before: Unix time; an entry stays if its last tick or its start is not before this time
-- ARGV[2...] entry: id of each entry
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
