#!lua flags=allow-oom
-- List a page of the active tasks whose lease ended long enough ago, the longest ago first.
-- KEYS[1] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] own_slack: grace period in seconds after the lease of a task with a token
-- ARGV[3] foreign_slack: grace period in seconds for a task without a token
-- ARGV[4] start: number of leases to skip, from the one that ended first on
-- ARGV[5] limit: number of leases to check
-- ARGV[6] now_seconds: empty for Redis' clock
-- ARGV[7] now_microseconds: within the second
-- Returns: number of leases checked, and id, message, crashes, token, lease_score, begun, lapses, extended for each task; message, begun and extended may be empty
-- Uses: now

local lease = KEYS[1]
local task_prefix, own_slack, foreign_slack, start, limit, now_seconds, now_microseconds = unpack(ARGV)

local seconds = now(now_seconds, now_microseconds)
local latest = seconds - math.min(own_slack, foreign_slack)
local entries = redis.call('ZRANGEBYSCORE', lease, '-inf', latest, 'WITHSCORES', 'LIMIT', start, limit)
local found = { #entries / 2 }
for i = 1, #entries, 2 do
  local id, score = entries[i], entries[i + 1]
  local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'x:crashes', 'x:attempt', 'x:begun', 'x:lapses', 'x:extended')
  local slack = fields[3] and own_slack or foreign_slack
  if tonumber(score) <= seconds - slack then
    found[#found + 1] = id
    found[#found + 1] = fields[1] or ''
    found[#found + 1] = tonumber(fields[2] or 0) or 0
    found[#found + 1] = fields[3] or ''
    found[#found + 1] = score
    found[#found + 1] = fields[4] or ''
    found[#found + 1] = tonumber(fields[5] or 0) or 0
    found[#found + 1] = fields[6] or ''
  end
end
return found
