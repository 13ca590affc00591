#!lua flags=allow-oom
-- End the pause of a queue.
-- KEYS[1] paused: exists while the queue is paused
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- Returns: 1, or 0 if it was not paused

local paused = KEYS[1]
local replay = ARGV[1]

local ended = redis.call('DEL', paused)
return replay == '1' and 1 or ended
