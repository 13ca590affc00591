-- Return which script the stored settings of a queue require: 0 for none, 1 for limits, 2 for order; 3 is 1 for a
-- queue that is not ordered, overriding all servers.
local function stored_rules(limits)
  local ordered = redis.call('HGET', limits, 'ordered')
  if ordered then
    return ordered == '1' and 2 or 3
  end
  return redis.call('EXISTS', limits)
end
