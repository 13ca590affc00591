-- Remove the tasks whose claims hold from the newest ids of `active`; return them: true by id. Each LREM
-- would walk over all newer ids; so if there are many tasks, the newest ids are popped once, and the others
-- pushed back. No command may fail between the pop and the push. Return nil if this is not worth it: for few
-- tasks, or if the first one is not among the newest 1,000.
local function take_newest(active, first, stride, claims_hold)
  local number = (#ARGV - first + 1) / stride
  local depth = number >= 20 and redis.call('LPOS', active, ARGV[first], 'MAXLEN', 1000)
  if not depth then
    return nil
  end
  local claimed, taken, others = {}, {}, {}
  for at = first, #ARGV, stride do
    claimed[ARGV[at]] = claims_hold[at]
  end
  -- The first write: one that Redis 6.2 allows when it is full.
  local newest = redis.call('LPOP', active, depth + 1)
  for i = #newest, 1, -1 do
    local id = newest[i]
    if claimed[id] and not taken[id] then
      taken[id] = true
    else
      others[#others + 1] = id
    end
  end
  if #others > 0 then
    redis.call('LPUSH', active, unpack(others))
  end
  return taken
end
