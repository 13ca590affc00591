-- Lets a lock, if this task owns it, hold after `wait` seconds for as long as it was asked for, and for `least`
-- seconds; it is never cut short. A lock of a Go client's task does not tell how long that is.
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
