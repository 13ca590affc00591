#!lua flags=allow-oom
-- Read tasks, and their scores in the sorted sets of their states.
-- KEYS[1] scheduled: sorted set of ids by the second they are due
-- KEYS[2] retry: sorted set of ids by the second they are due
-- KEYS[3] archived: sorted set of ids by the second they were archived
-- KEYS[4] completed: sorted set of ids by the second they are to be deleted
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3] max_bytes: maximum bytes of messages; a larger first message is taken alone
-- ARGV[4...] id: for each task
-- Returns: number of tasks read, and for each its score, empty if it is not in such a set, and its values

local scheduled, retry, archived, completed = unpack(KEYS)
local task_prefix, group_prefix, max_bytes = unpack(ARGV, 1, 3)

local sets = { scheduled = scheduled, retry = retry, archived = archived, completed = completed }
local bytes, reply = 0, { 0 }
for at = 4, #ARGV, 1 do
  local id = ARGV[at]
  local values = redis.call('HMGET', task_prefix .. id, 'msg', 'state', 'group', 'unique_key', 'x:attempt',
    'x:group', 'pending_since', 'x:crashes')
  bytes = bytes + #(values[1] or '')
  if at > 4 and bytes > tonumber(max_bytes) then
    break
  end
  local set = sets[values[2]]
  if values[2] == 'aggregating' then
    set = group_prefix .. (values[3] or '')
  end
  reply[1] = reply[1] + 1
  reply[#reply + 1] = set and redis.call('ZSCORE', set, id) or ''
  reply[#reply + 1] = values
end
return reply
