#!lua flags=allow-oom
-- Pause an entry, or end its pause, if its scheduler supports pauses.
-- KEYS[1] ticks: hash of the last tick of each entry, of `<entry>:since` and of `<entry>:paused`
-- ARGV[1] entry: its id
-- ARGV[2] action: pause or unpause
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- Returns: second since which it is paused, 0 if it is not, -1 if its scheduler does not support pauses
-- Uses: now

local ticks = KEYS[1]
local entry, action, now_seconds, now_microseconds = unpack(ARGV)

if redis.call('HEXISTS', ticks, entry .. ':since') == 0 then
  return -1
end
local paused = tonumber(redis.call('HGET', ticks, entry .. ':paused') or '') or 0
redis.call('HDEL', ticks, entry .. ':paused')
if action == 'unpause' then
  return 0
end
if paused <= 0 then
  paused = now(now_seconds, now_microseconds)
end
redis.call('HSET', ticks, entry .. ':paused', paused)
return paused
