-- Returns the limits that apply: those of the call, unless others are stored. First how many tasks may run at
-- once, then the microseconds from one token to the next and how many tokens may be saved; nil is no limit.
local function read_limits(limits, concurrency, rate, period, burst)
  local stored = redis.call('HMGET', limits, 'concurrency', 'rate', 'period', 'burst')
  if stored[2] then
    rate, period, burst = stored[2], stored[3], stored[4]
  end
  local per_period = tonumber(rate)
  return tonumber(stored[1] or concurrency), per_period and period * 1000000 / per_period, tonumber(burst)
end
