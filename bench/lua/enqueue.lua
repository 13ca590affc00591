-- The least that enqueueing asks of Redis.
-- KEYS[1] pending: list of ids
-- ARGV[1] task_prefix: key of a task without the id at its end
-- ARGV[2...] id, message: for each task

local ids = {}
for at = 2, #ARGV, 2 do
  local id = ARGV[at]
  local task = ARGV[1] .. id
  if redis.call('EXISTS', task) == 0 then
    redis.call('HSET', task, 'msg', ARGV[at + 1], 'state', 'pending', 'pending_since', '1')
    ids[#ids + 1] = id
  end
end
redis.call('LPUSH', KEYS[1], unpack(ids))
return #ids
