#!lua flags=allow-oom
-- Renew leases: set the second at which they end.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] lease_seconds: duration of the leases
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6...] id, token, lease_score: for each task
-- Returns: lease_score, seconds, microseconds, and the ids of tasks whose claims do not hold
-- Uses: now, ceiling

local active, lease = unpack(KEYS)
local replay, task_prefix, lease_seconds, now_seconds, now_microseconds = unpack(ARGV, 1, 5)

local seconds, microseconds = now(now_seconds, now_microseconds)
local new_score = ceiling(seconds, microseconds) + lease_seconds
-- As a number it would be converted to text for each task.
local new_score_text = tostring(new_score)

local function holds(id, token, claimed)
  if redis.call('HGET', task_prefix .. id, 'x:attempt') ~= token then
    return false
  end
  local score = redis.call('ZSCORE', lease, id)
  if not score then
    return redis.call('LPOS', active, id)
  end
  -- On a replay a later score may be the first run's; it can be another worker's only if our claim has lapsed.
  return tonumber(score) <= claimed or (replay == '1' and claimed >= seconds)
end

local ids, renewed, lost = {}, {}, {}
for at = 6, #ARGV, 3 do
  local id, token, claimed = unpack(ARGV, at, at + 2)
  if holds(id, token, tonumber(claimed)) then
    ids[#ids + 1] = id
    renewed[#renewed + 1] = new_score_text
    renewed[#renewed + 1] = id
  else
    lost[#lost + 1] = id
  end
end
if #ids > 0 then
  -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
  redis.call('ZREM', lease, unpack(ids))
  redis.call('ZADD', lease, unpack(renewed))
end
return { new_score, seconds, microseconds, unpack(lost) }
