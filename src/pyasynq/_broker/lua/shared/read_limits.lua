-- Return the effective limits of a queue: stored limits override those of the call. The values are the number
-- of tasks that may run at once, the microseconds per token, and the size of the token bucket; nil means
-- unlimited.
local function read_limits(limits, concurrency, rate, period, burst)
  local stored = redis.call('HMGET', limits, 'concurrency', 'rate', 'period', 'burst')
  -- A value that is not a number is not a limit: its writer could have written any number.
  local stored_rate, stored_period, stored_burst = tonumber(stored[2]), tonumber(stored[3]), tonumber(stored[4])
  if stored_rate and stored_rate > 0 and stored_period and stored_period > 0 and stored_burst then
    rate, period, burst = stored_rate, stored_period, stored_burst
  end
  local per_period = tonumber(rate)
  return tonumber(stored[1] or concurrency), per_period and period * 1000000 / per_period, tonumber(burst)
end
