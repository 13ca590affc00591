#!lua flags=allow-oom
-- Remove ids from a collection whose tasks are gone or in another state; delete the hashes of tasks without a message.
-- KEYS[1] collection: list or sorted set of ids
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] state: of the tasks that belong there
-- ARGV[3...] id: each suspected id
-- Returns: number of ids removed

local collection = KEYS[1]
local task_prefix, state = unpack(ARGV, 1, 2)

local is_list = redis.call('TYPE', collection).ok == 'list'
local dropped = 0
for at = 3, #ARGV, 1 do
  local id = ARGV[at]
  local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'state')
  if not fields[1] then
    redis.call('DEL', task_prefix .. id)
  end
  if not fields[1] or fields[2] ~= state then
    if is_list then
      dropped = dropped + redis.call('LREM', collection, -1, id)
    else
      dropped = dropped + redis.call('ZREM', collection, id)
    end
  end
end
return dropped
