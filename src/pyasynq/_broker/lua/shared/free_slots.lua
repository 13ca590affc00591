-- Return how many more tasks of a queue may run now. A lease counts while it ends later than now.
local function free_slots(lease, concurrency, seconds)
  if not concurrency then
    return math.huge
  end
  return math.max(0, concurrency - redis.call('ZCOUNT', lease, '(' .. seconds, '+inf'))
end
