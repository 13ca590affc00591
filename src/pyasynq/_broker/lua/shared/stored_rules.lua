-- Return the script that the stored settings of a queue require: 0 `dequeue`, 1 `dequeue_limited`, 2
-- `dequeue_ordered`. 3 is `dequeue_limited`, too: the stored settings say that the queue is not ordered,
-- which overrides the servers.
local function stored_rules(limits)
  local ordered = redis.call('HGET', limits, 'ordered')
  if ordered then
    return ordered == '1' and 2 or 3
  end
  return redis.call('EXISTS', limits)
end
