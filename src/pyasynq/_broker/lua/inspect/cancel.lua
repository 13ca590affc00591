#!lua flags=allow-oom
-- Store a request to cancel the attempt that runs a task now, for 60 seconds.
-- KEYS[1] task: the task's hash
-- KEYS[2] cancel: hash of id: second, outcome and token of the attempt
-- ARGV[1] id: of the task
-- ARGV[2] outcome: how the cancelled task ends
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- Returns: state of the task and token of its attempt (empty for a worker in Go); nothing if the task does not exist
-- Uses: now

local task, cancel = unpack(KEYS)
local id, outcome, now_seconds, now_microseconds = unpack(ARGV)

local fields = redis.call('HMGET', task, 'msg', 'state', 'x:attempt')
local state, token = fields[2], fields[3] or ''
if not fields[1] or not state then
  return {}
end
if state == 'active' and token ~= '' then
  local seconds = now(now_seconds, now_microseconds)
  redis.call('HDEL', cancel, id)
  redis.call('HSET', cancel, id, seconds .. ' ' .. outcome .. ' ' .. token)
  redis.call('EXPIRE', cancel, 60)
  -- Under a steady stream of requests the hash never expires, so each request deletes up to two old ones.
  local some = redis.call('HRANDFIELD', cancel, 2, 'WITHVALUES')
  for i = 1, #some, 2 do
    if (tonumber(some[i + 1]:match('^%d+')) or 0) <= seconds - 60 then
      redis.call('HDEL', cancel, some[i])
    end
  end
end
return { state, token }
