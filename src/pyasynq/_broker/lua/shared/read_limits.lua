-- Returns the limits that apply: those of the call, unless others are stored. First how many tasks may run at
-- once, then the microseconds from one token to the next and how many tokens may be saved; nil is no limit.
local function read_limits(limits, concurrency, rate, period, burst)
  local stored = redis.call('HMGET', limits, 'concurrency', 'rate', 'period', 'burst')
  -- What is no number is no limit: who can write that could as well write another one.
  local stored_rate, stored_period, stored_burst = tonumber(stored[2]), tonumber(stored[3]), tonumber(stored[4])
  if stored_rate and stored_rate > 0 and stored_period and stored_period > 0 and stored_burst then
    rate, period, burst = stored_rate, stored_period, stored_burst
  end
  local per_period = tonumber(rate)
  return tonumber(stored[1] or concurrency), per_period and period * 1000000 / per_period, tonumber(burst)
end
