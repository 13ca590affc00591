#!lua flags=allow-oom
-- Let requests to a host begin: as many as its throttling, its concurrency and its rate allow.
-- KEYS[1] gate: hash of the microsecond at which all tokens are there again, and of the millisecond until which the host is throttled
-- KEYS[2] semaphore: sorted set of requests by the second until which they hold a slot
-- ARGV[1] now_seconds: empty for Redis' clock
-- ARGV[2] now_microseconds: within the second
-- ARGV[3] rate: number of requests per period; empty for no limit
-- ARGV[4] period: in seconds
-- ARGV[5] burst: size of the token bucket
-- ARGV[6] concurrency: number of requests at once; empty for no limit
-- ARGV[7] lease: seconds for which a request holds its slot unless it renews it
-- ARGV[8] longest: milliseconds for which a host may be throttled
-- ARGV[9...] id: unique id of each request
-- Returns: admitted (number of requests that may begin, the first ones), throttled (milliseconds until the host may be called), wait (microseconds until the next token, 0 if there is one now), left (tokens that are there now, 0 without a rate)
-- Uses: now, throttled_for, free_tokens, spend_tokens

local gate, semaphore = unpack(KEYS)
local now_seconds, now_microseconds, rate, period, burst, concurrency, lease, longest = unpack(ARGV, 1, 8)

local seconds, microseconds = now(now_seconds, now_microseconds)
local time = seconds * 1000000 + microseconds
local throttled = throttled_for(gate, time / 1000, tonumber(longest))
if throttled > 0 then
  return { 0, throttled, 0, 0 }
end
local ids = {}
for at = 9, #ARGV, 1 do
  ids[#ids + 1] = ARGV[at]
end
local admitted = #ids
if concurrency ~= '' then
  -- A call that is resent after a lost reply first gives back the slots that its first run took.
  redis.call('ZREM', semaphore, unpack(ids))
  redis.call('ZREMRANGEBYSCORE', semaphore, '-inf', seconds - 1)
  admitted = math.max(0, math.min(admitted, tonumber(concurrency) - redis.call('ZCARD', semaphore)))
end
local left, wait = 0, 0
if rate ~= '' then
  local interval = tonumber(period) * 1000000 / tonumber(rate)
  local tokens, full_at = free_tokens(gate, interval, tonumber(burst), time)
  admitted = math.min(admitted, tokens)
  if admitted > 0 then
    -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
    redis.call('HDEL', gate, 'full_at')
    full_at = spend_tokens(gate, interval, time, full_at, admitted)
  end
  left = tokens - admitted
  if left < 1 then
    wait = math.max(1, math.ceil(full_at - (tonumber(burst) - 1) * interval - time))
  end
end
if concurrency ~= '' then
  for place = 1, admitted do
    redis.call('ZADD', semaphore, seconds + tonumber(lease), ids[place])
  end
  -- The minute allows for Redis' clock being set back.
  redis.call('EXPIRE', semaphore, tonumber(lease) + 60)
end
return { admitted, 0, wait, left }
