-- Appends events of tasks to the stream of their queue, of which the oldest go when it is long enough.
-- KEYS[1] events: stream
-- ARGV[1] max_length: how many events are kept, roughly
-- ARGV[2] lifetime: seconds after its last event that the stream goes
-- ARGV[3...] event: for each
-- Returns: how many were appended

local events = KEYS[1]
local max_length, lifetime = unpack(ARGV, 1, 2)

local appended = 0
for at = 3, #ARGV, 1 do
  redis.call('XADD', events, 'MAXLEN', '~', max_length, '*', 'event', ARGV[at])
  appended = appended + 1
end
redis.call('EXPIRE', events, lifetime)
return appended
