-- Take tokens out of a bucket that would be full at `full_at`; return when it is full after that.
local function spend_tokens(bucket, interval, time, full_at, number)
  local full_again = full_at + number * interval
  redis.call('HSET', bucket, 'full_at', full_again)
  -- A full bucket need not be stored; the minute allows for Redis' clock being set back.
  redis.call('EXPIRE', bucket, math.ceil((full_again - time) / 1000000) + 60)
  return full_again
end
