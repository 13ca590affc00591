#!lua flags=allow-oom
-- Renew the slots of running requests to a host; a request that has lost its slot gets none.
-- KEYS[1] semaphore: sorted set of requests by the second until which they hold a slot
-- ARGV[1] now_seconds: empty for Redis' clock
-- ARGV[2] now_microseconds: within the second
-- ARGV[3] lease: seconds for which a request holds its slot unless it renews it again
-- ARGV[4...] id: of each request
-- Returns: number of requests that still hold their slot
-- Uses: now

local semaphore = KEYS[1]
local now_seconds, now_microseconds, lease = unpack(ARGV, 1, 3)

local deadline = now(now_seconds, now_microseconds) + tonumber(lease)
local held = 0
for at = 4, #ARGV, 1 do
  -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
  if redis.call('ZREM', semaphore, ARGV[at]) == 1 then
    redis.call('ZADD', semaphore, deadline, ARGV[at])
    held = held + 1
  end
end
-- The minute allows for Redis' clock being set back.
redis.call('EXPIRE', semaphore, tonumber(lease) + 60)
return held
