-- Return the id that a lock holds, the message and the state of that task, and a digest that changes whenever
-- one of these changes.
local function lock_owner(lock, task_prefix)
  local owner = redis.call('GET', lock) or ''
  local values = redis.call('HMGET', task_prefix .. owner, 'msg', 'state')
  local message, state = values[1] or '', values[2] or ''
  return owner, message, state, redis.sha1hex(#owner .. owner .. state .. '\n' .. message)
end
