#!lua flags=allow-oom
-- Takes tasks from the front of a queue and gives each a lease and the token of this call.
-- KEYS[1] pending: list of ids
-- KEYS[2] paused: there while the queue is paused
-- KEYS[3] active: list of ids
-- KEYS[4] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: what stands before an id in the key of a task
-- ARGV[2] token: of this call
-- ARGV[3] limit: how many tasks at most
-- ARGV[4] max_bytes: of messages, unless the first one is larger
-- ARGV[5] lease_seconds: how long the leases hold
-- ARGV[6] suspect_from: crashes that make a task a suspect, which is taken alone; 0 for never
-- ARGV[7] suspect_room: 1 if a suspect may be taken
-- ARGV[8] now_seconds: empty for the clock of Redis
-- ARGV[9] now_microseconds: within the second
-- Returns: ghosts, empty, suspect_waiting, lease_score, seconds, microseconds, and id, message, crashes for each task
-- Uses: now, ceiling

local pending, paused, active, lease = unpack(KEYS)
local task_prefix, token, limit, max_bytes, lease_seconds, suspect_from, suspect_room, now_seconds,
  now_microseconds = unpack(ARGV)
limit, max_bytes, suspect_from = tonumber(limit), tonumber(max_bytes), tonumber(suspect_from)

local seconds, microseconds = now(now_seconds, now_microseconds)
local lease_score = ceiling(seconds, microseconds) + lease_seconds
local ghosts, empty, suspect_waiting, bytes = 0, 0, 0, 0
local ids, leases, reply = {}, {}, {}

local function take(id, message, crashes)
  redis.call('HSET', task_prefix .. id, 'state', 'active', 'x:attempt', token)
  redis.call('HDEL', task_prefix .. id, 'pending_since')
  bytes = bytes + #message
  ids[#ids + 1] = id
  leases[#leases + 1] = lease_score
  leases[#leases + 1] = id
  reply[#reply + 1] = id
  reply[#reply + 1] = message
  reply[#reply + 1] = crashes
end

-- Walks over ids in the order in which they left the queue; returns those that are to go back.
local function walk(popped)
  for i, id in ipairs(popped) do
    local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'x:crashes')
    local message, crashes = fields[1], tonumber(fields[2] or 0)
    local suspect = suspect_from > 0 and crashes >= suspect_from
    if not message then
      redis.call('DEL', task_prefix .. id)
      ghosts = ghosts + 1
    elseif suspect and suspect_room == '1' and #ids == 0 then
      take(id, message, crashes)
      return { unpack(popped, i + 1) }
    elseif suspect or (#ids > 0 and bytes + #message > max_bytes) then
      suspect_waiting = suspect and 1 or 0
      return { unpack(popped, i) }
    else
      take(id, message, crashes)
    end
  end
end

if redis.call('EXISTS', paused) == 1 then
  empty = 1
else
  local rest
  while #ids < limit and not rest do
    local popped = redis.call('RPOP', pending, limit - #ids)
    if not popped or #popped == 0 then
      empty = 1
      break
    end
    rest = walk(popped)
  end
  if rest then
    for i = #rest, 1, -1 do
      redis.call('RPUSH', pending, rest[i])
    end
  end
  if #ids > 0 then
    redis.call('LPUSH', active, unpack(ids))
    redis.call('ZADD', lease, unpack(leases))
  end
end
return { ghosts, empty, suspect_waiting, lease_score, seconds, microseconds, unpack(reply) }
