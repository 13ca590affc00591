#!lua flags=allow-oom
-- Make aggregation sets of the oldest members of due groups.
-- KEYS[1] groups: set of the names of groups
-- KEYS[2] aggregation_sets: sorted set of the keys of sets by the second they are stale
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] group_prefix: prefix of group keys, before the name
-- ARGV[4] limit: largest number of sets
-- ARGV[5] members: largest size of a set whose group has no max_size
-- ARGV[6] max_bytes: of messages in a set, unless the first one is larger
-- ARGV[7] timeout: seconds after which a new set is stale
-- ARGV[8] now_seconds: empty for Redis' clock
-- ARGV[9] now_microseconds: within the second
-- ARGV[10...] group, set, max_size, max_delay, grace: for each group; 0 for no maximum
-- Returns: Redis' time in seconds and microseconds; then for each group the number of tasks moved, and the second at which the other members are due (empty if there are none)
-- Uses: now, ceiling

local groups, aggregation_sets = unpack(KEYS)
local replay, task_prefix, group_prefix, limit, members, max_bytes, timeout, now_seconds,
  now_microseconds = unpack(ARGV, 1, 9)
limit, members, max_bytes = tonumber(limit), tonumber(members), tonumber(max_bytes)

local seconds, microseconds = now(now_seconds, now_microseconds)
local stale_at = ceiling(seconds, microseconds) + timeout

local function due_at(group_key, max_size, max_delay, grace)
  local size = redis.call('ZCARD', group_key)
  if size == 0 then
    return nil
  end
  if max_size > 0 and size >= max_size then
    return seconds
  end
  local due = tonumber(redis.call('ZRANGE', group_key, -1, -1, 'WITHSCORES')[2]) + grace
  if max_delay > 0 then
    due = math.min(due, tonumber(redis.call('ZRANGE', group_key, 0, 0, 'WITHSCORES')[2]) + max_delay)
  end
  return due
end

-- Move up to `most` members; drop ids without a message. Return the number moved.
local function take(group_key, set, most)
  local entries = redis.call('ZRANGE', group_key, 0, most - 1, 'WITHSCORES')
  local moved, leaving, bytes = {}, 0, 0
  for i = 1, #entries, 2 do
    local task = task_prefix .. entries[i]
    local size = redis.call('HSTRLEN', task, 'msg')
    if #moved > 0 and bytes + size > max_bytes then
      break
    end
    if size == 0 then
      redis.call('DEL', task)
    else
      bytes = bytes + size
      moved[#moved + 1] = entries[i + 1]
      moved[#moved + 1] = entries[i]
    end
    leaving = leaving + 1
  end
  redis.call('ZREMRANGEBYRANK', group_key, 0, leaving - 1)
  for first = 1, #moved, 2000 do
    redis.call('ZADD', set, unpack(moved, first, math.min(first + 1999, #moved)))
  end
  if #moved > 0 then
    redis.call('ZADD', aggregation_sets, stale_at, set)
  end
  return #moved / 2
end

local sets, reply = 0, { seconds, microseconds }
for at = 10, #ARGV, 5 do
  local group, set, max_size, max_delay, grace = unpack(ARGV, at, at + 4)
  local group_key, size = group_prefix .. group, tonumber(max_size)
  local moved = replay == '1' and redis.call('ZCARD', set) or 0
  local due = due_at(group_key, size, tonumber(max_delay), grace)
  if moved == 0 and sets < limit and due and due <= seconds then
    moved = take(group_key, set, size > 0 and size or members)
    due = due_at(group_key, size, tonumber(max_delay), grace)
  end
  if moved > 0 then
    sets = sets + 1
  end
  if not due then
    redis.call('SREM', groups, group)
  end
  reply[#reply + 1] = moved
  reply[#reply + 1] = due or ''
end
return reply
