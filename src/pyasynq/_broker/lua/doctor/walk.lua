#!lua flags=allow-oom
-- Check a page of a collection for ids whose tasks are not in its state.
-- KEYS[1] collection: list or sorted set of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] state: of the tasks that belong there
-- ARGV[3] group: of the tasks that belong there; empty for any
-- ARGV[4] start: position of the first id
-- ARGV[5] stop: position of the last id
-- Returns: number of ids checked, a list of them if their places cannot be read one by one, and a list of the suspicious ones

local collection, lease = unpack(KEYS)
local task_prefix, state, group, start, stop = unpack(ARGV)

local is_list = redis.call('TYPE', collection).ok == 'list'
local ids, scores = {}, {}
if is_list then
  ids = redis.call('LRANGE', collection, start, stop)
else
  local members = redis.call('ZRANGE', collection, start, stop, 'WITHSCORES')
  for at = 1, #members, 2 do
    ids[#ids + 1] = members[at]
    scores[#scores + 1] = tonumber(members[at + 1])
  end
end
local leases = is_list and state == 'active' and #ids > 0 and redis.call('ZMSCORE', lease, unpack(ids))
local suspects = {}
for at, id in ipairs(ids) do
  local task = task_prefix .. id
  local values = redis.call('HMGET', task, 'state', 'group')
  local is_sound = values[1] == state and (group == '' or values[2] == group) and (not leases or leases[at])
  local is_whole = is_list or scores[at] % 1 == 0
  if not is_sound or not is_whole or redis.call('HSTRLEN', task, 'msg') == 0 then
    suspects[#suspects + 1] = id
  end
end
return { #ids, (is_list or state == 'aggregating') and ids or {}, suspects }
