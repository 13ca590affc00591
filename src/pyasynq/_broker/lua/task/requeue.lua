#!lua flags=allow-oom
-- Put unfinished tasks back to the front of their queue in their order; count crashes of their workers.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] pending: list of ids
-- KEYS[4] verdicts: sorted set of the verdict of leased attempts, by the second it is forgotten
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] now_seconds: empty for Redis' clock
-- ARGV[4] now_microseconds: within the second
-- ARGV[5] verdict: the verdict of leased attempts; empty for the attempts of workers
-- ARGV[6] forget_at: second until which the verdict is kept
-- ARGV[7...] id, token, lease_score, crash: for each task; crash is the attempt of a worker that crashed, as JSON, else empty
-- Returns: the ids of tasks whose claims do not hold
-- Uses: now, nanoseconds, old_verdicts, take_claimed, count_crash, note_verdicts

local active, lease, pending, verdicts = unpack(KEYS)
local replay, task_prefix, now_seconds, now_microseconds, verdict, forget_at = unpack(ARGV, 1, 6)

local pending_since = nanoseconds(now(now_seconds, now_microseconds))
local function store(held)
  local added = {}
  for i = #held, 1, -1 do
    added[#added + 1] = ARGV[held[i]]
  end
  return redis.pcall('RPUSH', pending, unpack(added))
end

local old = old_verdicts(verdicts, verdict, forget_at)
local held, refused = take_claimed(active, lease, task_prefix, replay, 'pending', store, nil, 7, 4)
for _, at in ipairs(held) do
  local id, crash = ARGV[at], ARGV[at + 3]
  local task = task_prefix .. id
  redis.call('HDEL', task, 'x:attempt')
  redis.call('HSET', task, 'state', 'pending', 'pending_since', pending_since)
  if crash ~= '' then
    count_crash(task, id, crash, 'x:crashes')
  end
end
if verdict ~= '' then
  note_verdicts(verdicts, verdict, forget_at, held, old)
end
return refused
