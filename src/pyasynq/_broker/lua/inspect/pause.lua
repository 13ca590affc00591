#!lua flags=allow-oom
-- Pause a queue, unless it is paused.
-- KEYS[1] paused: exists while the queue is paused
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] since: Unix second at which the pause begins, as text
-- ARGV[3] duration: seconds of the pause; 0 for a pause without an end
-- Returns: 1, or 0 if it was paused

local paused = KEYS[1]
local replay, since, duration = unpack(ARGV)

local held = redis.call('GET', paused)
if held and (replay == '0' or held ~= since) then
  return 0
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('DEL', paused)
redis.call('SET', paused, since)
if duration ~= '0' then
  redis.call('EXPIRE', paused, duration)
end
return 1
