-- Return the last tick and the start of each entry; a new entry continues its predecessor, or starts now.
-- KEYS[1] ticks: hash of the last tick of each entry, and of `<entry>:since`
-- ARGV[1] now_seconds: empty for Redis' clock
-- ARGV[2] now_microseconds: within the second
-- ARGV[3...] entry, predecessor: for each entry its id, and the id of the entry that it replaces; empty for none
-- Returns: Redis' time in seconds and microseconds; then for each entry its last tick (empty for none) and its start
-- Uses: now

local ticks = KEYS[1]
local now_seconds, now_microseconds = unpack(ARGV, 1, 2)

local seconds, microseconds = now(now_seconds, now_microseconds)
local found = { seconds, microseconds }
for at = 3, #ARGV, 2 do
  local entry, predecessor = ARGV[at], ARGV[at + 1]
  local tick, since = unpack(redis.call('HMGET', ticks, entry, entry .. ':since'))
  if not since and not tick and predecessor ~= '' then
    local paused
    tick, since, paused = unpack(redis.call('HMGET', ticks, predecessor, predecessor .. ':since',
      predecessor .. ':paused'))
    if paused then
      redis.call('HSET', ticks, entry .. ':paused', paused)
    end
    if tick then
      redis.call('HSET', ticks, entry, tick)
    end
    redis.call('HSET', ticks, entry .. ':since', since or seconds)
  elseif not since then
    redis.call('HSET', ticks, entry .. ':since', seconds)
  end
  found[#found + 1] = tick or ''
  found[#found + 1] = since or seconds
end
return found
