-- Append task events to the stream of their queue, and trim its oldest events.
-- KEYS[1] events: stream
-- ARGV[1] max_length: approximate number of events to keep
-- ARGV[2] lifetime: seconds after its last event until the stream expires
-- ARGV[3...] event: for each
-- Returns: number of events appended

local events = KEYS[1]
local max_length, lifetime = unpack(ARGV, 1, 2)

local appended = 0
for at = 3, #ARGV, 1 do
  redis.call('XADD', events, 'MAXLEN', '~', max_length, '*', 'event', ARGV[at])
  appended = appended + 1
end
redis.call('EXPIRE', events, lifetime)
return appended
