#!lua flags=allow-oom
-- Move due tasks to the end of the queue or into their group; in an ordered queue, retries go to the front.
-- KEYS[1] source: sorted set of ids by the second they are due
-- KEYS[2] pending: list of ids
-- KEYS[3] groups: set of the names of groups
-- KEYS[4] limits: hash of the settings of the queue
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] group_prefix: prefix of group keys, before the name
-- ARGV[3] tried: 1 for the tasks in retry, which have been tried before
-- ARGV[4] limit: largest number of tasks
-- ARGV[5] now_seconds: empty for Redis' clock
-- ARGV[6] now_microseconds: within the second
-- Returns: number of tasks moved, 1 if more are due, second at which the next one is due (empty for none), and Redis' time in seconds and microseconds
-- Uses: now, ceiling, give_up, is_error, join_group, nanoseconds, stored_rules

local source, pending, groups, limits = unpack(KEYS)
local task_prefix, group_prefix, tried, limit, now_seconds, now_microseconds = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
local pending_since = nanoseconds(seconds, microseconds)
local due = redis.call('ZRANGEBYSCORE', source, '-inf', seconds, 'WITHSCORES', 'LIMIT', 0, limit)
local to_front = false
if #due > 0 then
  to_front = tried == '1' and stored_rules(limits) == 2
  if to_front then
    -- The task put in front last is taken first, so push the earliest due task last.
    due = redis.call('ZRANGE', source, seconds, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, limit, 'WITHSCORES')
  end
end
-- Everything is read before anything is written: a key of the wrong type fails here.
local ids, pending_ids, back, hashes, group_names = {}, {}, {}, {}, {}
for i = 1, #due, 2 do
  local id = due[i]
  local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'group', 'x:group', 'x:attempt')
  local group = fields[2] or ''
  if group == '' then
    group = fields[3] or ''
  end
  ids[#ids + 1], hashes[id], back[id] = id, fields, due[i + 1]
  if fields[1] and group ~= '' and not to_front then
    group_names[id] = group
  elseif fields[1] then
    pending_ids[#pending_ids + 1] = id
  end
end
if #ids > 0 then
  redis.call('ZREM', source, unpack(ids))
end

-- Put the tasks that were not moved back into the source, and end the script.
local function undo(failed)
  for id, score in pairs(back) do
    redis.call('ZADD', source, score, id)
  end
  give_up(failed)
end

local function clear_attempt(id)
  if hashes[id][4] then
    -- Go's recoverer took the task from an attempt of ours and left the token.
    redis.call('HDEL', task_prefix .. id, 'x:attempt')
  end
end

local moved = #pending_ids
for _, id in ipairs(ids) do
  local group = group_names[id]
  if group then
    local failed = join_group(groups, group_prefix, group, ceiling(seconds, microseconds), id)
    if failed then
      undo(failed)
    end
    clear_attempt(id)
    redis.call('HDEL', task_prefix .. id, 'x:group')
    redis.call('HSET', task_prefix .. id, 'state', 'aggregating', 'group', group)
    back[id], moved = nil, moved + 1
  end
end
if #pending_ids > 0 then
  local reply = redis.pcall(to_front and 'RPUSH' or 'LPUSH', pending, unpack(pending_ids))
  if is_error(reply) then
    undo(reply)
  end
end
for _, id in ipairs(ids) do
  if not hashes[id][1] then
    redis.call('DEL', task_prefix .. id)
  elseif not group_names[id] then
    clear_attempt(id)
    redis.call('HSET', task_prefix .. id, 'state', 'pending', 'pending_since', pending_since)
  end
end
local next_one = redis.call('ZRANGE', source, 0, 0, 'WITHSCORES')
local more = next_one[2] and tonumber(next_one[2]) <= seconds and 1 or 0
return { moved, more, next_one[2] or '', seconds, microseconds }
