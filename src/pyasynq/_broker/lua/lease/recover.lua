#!lua flags=allow-oom
-- Put tasks of dead workers back to the front of their queue in their order, count crash or lapse, and renew their locks.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] pending: list of ids
-- KEYS[4] verdicts: sorted set of the outcomes of leased attempts, by the second they are forgotten
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] own_slack: grace period in seconds after the lease of a task with a token; empty if its worker is known to be dead
-- ARGV[3] foreign_slack: grace period in seconds for a task without a token
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6...] id, token, lease_score, attempt, field: for each task, as it was seen, and the field that counts its crash or lapse; token, lease_score and attempt may be empty
-- Returns: id, count: for each task that is pending again
-- Uses: now, nanoseconds, old_lost, take_expired, count_crash, note_lost

local active, lease, pending, verdicts = unpack(KEYS)
local task_prefix, own_slack, foreign_slack, now_seconds, now_microseconds = unpack(ARGV, 1, 5)

local seconds, microseconds = now(now_seconds, now_microseconds)
local pending_since = nanoseconds(seconds, microseconds)

local function store(held)
  local added = {}
  for i = #held, 1, -1 do
    added[#added + 1] = ARGV[held[i]]
  end
  return redis.pcall('RPUSH', pending, unpack(added))
end

local old = old_lost(verdicts, seconds, 7, 5)
local held = take_expired(active, lease, task_prefix, own_slack, foreign_slack, seconds, store, 6, 5)
local recovered = {}
for i = #held, 1, -1 do
  local id = ARGV[held[i]]
  local task = task_prefix .. id
  redis.call('HDEL', task, 'x:attempt')
  redis.call('HSET', task, 'state', 'pending', 'pending_since', pending_since)
  recovered[#recovered + 1] = id
  recovered[#recovered + 1] = count_crash(task, id, unpack(ARGV, held[i] + 3, held[i] + 4))
end
note_lost(verdicts, held, seconds, old)
return recovered
