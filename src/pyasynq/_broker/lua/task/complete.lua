#!lua flags=allow-oom
-- Keeps finished tasks for their retention, releases the locks they own, and counts them.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] completed: sorted set of ids by the second they are to be deleted
-- KEYS[4] processed: number of attempts that ended
-- KEYS[5] processed_today: the same for this day
-- KEYS[6] verdicts: sorted set of what became of leased attempts, by the second it is forgotten
-- ARGV[1] replay: 1 when the call is sent again after its reply was lost
-- ARGV[2] task_prefix: what stands before an id in the key of a task
-- ARGV[3] day_end: second at which the day's counters go
-- ARGV[4] verdict: what became of leased attempts; empty for the attempts of workers
-- ARGV[5] forget_at: second until which the verdict is kept
-- ARGV[6...] id, token, lease_score, unique_key, message, expires_at, has_result, result, progress: for each task; the last may be empty
-- Returns: the ids of tasks that the claims do not hold
-- Uses: read_counts, old_verdicts, take_claimed, count, owns_lock, note_verdicts

local active, lease, completed, processed, processed_today, verdicts = unpack(KEYS)
local replay, task_prefix, day_end, verdict, forget_at = unpack(ARGV, 1, 5)

local function store(held)
  local added = {}
  for _, at in ipairs(held) do
    added[#added + 1] = ARGV[at + 5]
    added[#added + 1] = ARGV[at]
  end
  return redis.pcall('ZADD', completed, unpack(added))
end

local total = read_counts(processed, processed_today)
local old = old_verdicts(verdicts, verdict, forget_at)
local held, refused = take_claimed(active, lease, task_prefix, replay, 'completed', store, 6, 9)
local locks = {}
for _, at in ipairs(held) do
  local id, _, _, unique_key, message, _, has_result, result, progress = unpack(ARGV, at, at + 8)
  local task = task_prefix .. id
  redis.call('HDEL', task, 'x:attempt', 'x:crashes')
  redis.call('HSET', task, 'msg', message, 'state', 'completed')
  if has_result == '1' then
    redis.call('HSET', task, 'result', result)
  end
  if progress ~= '' then
    redis.call('HSET', task, 'x:progress', progress)
  end
  if owns_lock(task, id, unique_key) then
    locks[#locks + 1] = unique_key
  end
end
if #held > 0 then
  count(processed, processed_today, total, #held, day_end)
end
if #locks > 0 then
  redis.call('DEL', unpack(locks))
end
if verdict ~= '' then
  note_verdicts(verdicts, verdict, forget_at, held, old)
end
return refused
