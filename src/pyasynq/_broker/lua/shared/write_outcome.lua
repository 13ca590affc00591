-- Write an attempt's outcome into the hash of its task, and delete token, crashes and lapses. Empty values
-- are not written. Without a message and a trace, the stored trace stays.
-- Uses: add_attempt
local function write_outcome(task, state, message, trace, attempt, progress)
  local fields = { 'state', state }
  redis.call('HDEL', task, 'x:attempt', 'x:crashes', 'x:lapses')
  if message ~= '' then
    redis.call('HDEL', task, 'x:trace')
    fields = { 'state', state, 'msg', message }
  end
  if trace ~= '' then
    fields[#fields + 1] = 'x:trace'
    fields[#fields + 1] = trace
  end
  if attempt ~= '' then
    fields[#fields + 1] = 'x:attempts'
    fields[#fields + 1] = add_attempt(task, attempt)
  end
  if progress ~= '' then
    fields[#fields + 1] = 'x:progress'
    fields[#fields + 1] = progress
  end
  redis.call('HSET', task, unpack(fields))
end
