#!lua flags=allow-oom
-- Keep finished tasks for their retention, release the locks they own, and count them.
-- KEYS[1] active: list of ids
-- KEYS[2] lease: sorted set of ids by the second their lease ends
-- KEYS[3] completed: sorted set of ids by the second they are to be deleted
-- KEYS[4] processed: number of attempts that ended
-- KEYS[5] processed_today: the same for this day
-- KEYS[6] verdicts: sorted set of the verdict of leased attempts, by the second it is forgotten
-- KEYS[7] callbacks: exists if tasks of the queue have callbacks
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] day_end: second at which the day's counters expire
-- ARGV[4] verdict: the verdict of leased attempts; empty for the attempts of workers
-- ARGV[5] forget_at: second until which the verdict is kept
-- ARGV[6...] id, token, lease_score, unique_key, message, expires_at, has_result, result, progress: for each task; the last may be empty
-- Returns: the ids of tasks whose claims do not hold, then address and entry of each task with a callback
-- Uses: read_counts, old_verdicts, take_claimed, count, owns_lock, note_verdicts, write_endings

local active, lease, completed, processed, processed_today, verdicts, callbacks = unpack(KEYS)
local replay, task_prefix, day_end, verdict, forget_at = unpack(ARGV, 1, 5)

local function store(held)
  local added = {}
  for _, at in ipairs(held) do
    added[#added + 1] = ARGV[at + 5]
    added[#added + 1] = ARGV[at]
  end
  return redis.pcall('ZADD', completed, unpack(added))
end

local total, has_callbacks = read_counts(processed, processed_today, callbacks)
local old = old_verdicts(verdicts, verdict, forget_at)
local finished = has_callbacks and {} or nil
local held, refused =
  take_claimed(active, lease, task_prefix, replay, 'completed', store, finished, 6, 9)
if finished then
  write_endings(task_prefix, finished, held, 'succeeded', 1, nil, refused)
end
local locks = {}
for _, at in ipairs(held) do
  local id, _, _, unique_key, message, _, has_result, result, progress = unpack(ARGV, at, at + 8)
  local task = task_prefix .. id
  redis.call('HDEL', task, 'x:attempt', 'x:crashes', 'x:lapses')
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
