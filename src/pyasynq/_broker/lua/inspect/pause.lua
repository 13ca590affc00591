#!lua flags=allow-oom
-- Pauses a queue, unless it is paused.
-- KEYS[1] paused: there while the queue is paused
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] since: the second, as text
-- ARGV[3] duration: how many seconds the pause lasts; 0 for until it is ended
-- Returns: 1, or 0 if it was paused

local paused = KEYS[1]
local replay, since, duration = unpack(ARGV)

local held = redis.call('GET', paused)
if held and (replay == '0' or held ~= since) then
  return 0
end
-- A full Redis 6.2 refuses a script whose first write may grow; removing may not.
redis.call('DEL', paused)
redis.call('SET', paused, since)
if duration ~= '0' then
  redis.call('EXPIRE', paused, duration)
end
return 1
