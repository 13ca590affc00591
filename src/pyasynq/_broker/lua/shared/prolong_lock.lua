-- Prolong a lock that this task owns, so that it holds for its requested time, or at least `least` seconds,
-- after `wait` seconds have passed. It is never shortened. A Go client's lock does not store its requested
-- time.
-- Uses: owns_lock
local function prolong_lock(task, id, lock, wait, least)
  if not owns_lock(task, id, lock) then
    return
  end
  local asked = string.match(redis.call('HGET', task, 'x:unique_ttl') or '', '^%d+')
  local milliseconds = (wait + math.max(math.min(tonumber(asked or 0), 253402300799), least)) * 1000
  if redis.call('PTTL', lock) < milliseconds then
    redis.call('PEXPIRE', lock, milliseconds)
  end
end
