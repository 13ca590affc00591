-- The least that a worker asks of Redis: finish the tasks that are named, and take as many others.
-- KEYS[1] pending: list of ids
-- KEYS[2] active: list of ids
-- KEYS[3] lease: sorted set of ids by the second their lease ends
-- KEYS[4] processed: how many tasks ended
-- ARGV[1] task_prefix: key of a task without the id at its end
-- ARGV[2] limit: how many tasks to take
-- ARGV[3...] ids: of the tasks that are done
-- Returns: id, message for each task

local pending, active, lease, processed = unpack(KEYS)
local task_prefix, limit = unpack(ARGV, 1, 2)

if #ARGV > 2 then
  local keys = {}
  for at = 3, #ARGV do
    redis.call('LREM', active, '-1', ARGV[at])
    keys[#keys + 1] = task_prefix .. ARGV[at]
  end
  redis.call('ZREM', lease, unpack(ARGV, 3))
  redis.call('DEL', unpack(keys))
  redis.call('INCRBY', processed, #keys)
end

local taken = redis.call('RPOP', pending, limit)
if not taken then
  return {}
end
local reply, leases = {}, {}
for at, id in ipairs(taken) do
  local task = task_prefix .. id
  reply[2 * at - 1], reply[2 * at] = id, redis.call('HGET', task, 'msg')
  redis.call('HSET', task, 'state', 'active')
  redis.call('HDEL', task, 'pending_since')
  leases[2 * at - 1], leases[2 * at] = '4102444800', id
end
redis.call('LPUSH', active, unpack(taken))
redis.call('ZADD', lease, unpack(leases))
return reply
