-- Return id, message, state, score, result, crashes, trace, token, pending_since and progress of a task; missing
-- fields are false.
local function read_task(task, id, score)
  local fields = redis.call('HMGET', task, 'msg', 'state', 'result', 'x:crashes', 'x:trace', 'x:attempt',
    'pending_since', 'x:progress')
  return { id, fields[1], fields[2], score, unpack(fields, 3, 8) }
end
