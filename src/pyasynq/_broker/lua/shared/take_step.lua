-- Run one step of an operation, and keep its reply under the step's number. Return 0 and the reply; 1 and the
-- first reply for a step that was run before; -1 for a number below the last, whose caller has lost the
-- operation; and 2 for a step that changed and returned nothing, so that it can be run again.
local function take_step(ledger, number, lifetime, act)
  local last = redis.call('HMGET', ledger, 'number', 'reply')
  if last[1] == number then
    return { 1, cmsgpack.unpack(last[2]) }
  end
  if last[1] and tonumber(last[1]) > tonumber(number) then
    return { -1, {} }
  end
  local reply = act()
  if not reply then
    return { 2, {} }
  end
  redis.call('HSET', ledger, 'number', number, 'reply', cmsgpack.pack(reply))
  redis.call('EXPIRE', ledger, lifetime)
  return { 0, reply }
end
