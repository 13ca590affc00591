-- Takes tokens out of a bucket that would be full at `full_at`; returns when it is full then.
local function spend_tokens(bucket, interval, time, full_at, number)
  local full_again = full_at + number * interval
  redis.call('HSET', bucket, 'full_at', full_again)
  -- A full bucket need not be kept; the minute is for the clock of Redis, should it be set back.
  redis.call('EXPIRE', bucket, math.ceil((full_again - time) / 1000000) + 60)
  return full_again
end
