-- Run one step of an operation once, and keep its reply in the ledger under the step's number (idempotency).
-- Return 0 and the reply; 1 and the kept reply for a step that was run before; -1 for a number below the last
-- one, because another process has taken the operation over; or 2 if `act` changed nothing and returned nil,
-- so that the step can be run again.
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
