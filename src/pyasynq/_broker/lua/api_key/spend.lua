#!lua flags=allow-oom
-- Take a token out of an API key's bucket, for one request.
-- KEYS[1] bucket: hash of the microsecond at which all tokens are there again
-- ARGV[1] now_seconds: empty for Redis' clock
-- ARGV[2] now_microseconds: within the second
-- ARGV[3] rate: number of requests per period
-- ARGV[4] period: in seconds
-- ARGV[5] burst: size of the token bucket
-- Returns: taken (1, or 0 if the bucket was empty), left (tokens that are there now), wait (microseconds until the next token, if none was taken), fill (microseconds until the bucket is full)
-- Uses: now, free_tokens, spend_tokens

local bucket = KEYS[1]
local now_seconds, now_microseconds, rate, period, burst = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
local time = seconds * 1000000 + microseconds
local interval = tonumber(period) * 1000000 / tonumber(rate)
burst = tonumber(burst)
local tokens, full_at = free_tokens(bucket, interval, burst, time)
if tokens < 1 then
  return { 0, 0, math.max(1, math.ceil(full_at - (burst - 1) * interval - time)), math.ceil(full_at - time) }
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
redis.call('HDEL', bucket, 'full_at')
full_at = spend_tokens(bucket, interval, time, full_at, 1)
return { 1, tokens - 1, 0, math.ceil(full_at - time) }
