#!lua flags=allow-oom
-- Take no more tasks from the front of a queue than its limits allow; otherwise as `dequeue`.
-- KEYS[1] pending: list of ids
-- KEYS[2] paused: exists while the queue is paused
-- KEYS[3] active: list of ids
-- KEYS[4] lease: sorted set of ids by the second their lease ends
-- KEYS[5] limits: hash of settings, which override those of the call
-- KEYS[6] bucket: hash of the microsecond at which all tokens are there again, and of the last one that was promised to a caller
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] token: of this call
-- ARGV[3] limit: largest number of tasks
-- ARGV[4] max_bytes: maximum bytes of messages; a larger first message is taken alone
-- ARGV[5] lease_seconds: duration of the leases
-- ARGV[6] suspect_from: number of worker crashes that make a task a suspect; 0 for never
-- ARGV[7] suspect_room: 1 to take one suspect and nothing else; empty if none is known to wait
-- ARGV[8] now_seconds: empty for Redis' clock
-- ARGV[9] now_microseconds: within the second
-- ARGV[10] concurrency: number of tasks that may run at once; empty for any
-- ARGV[11] rate: number of tasks that may start per period; empty for any
-- ARGV[12] period: in seconds
-- ARGV[13] burst: number of tasks that may start at once (size of the token bucket)
-- ARGV[14] held_turn: microsecond at which a token was promised to the caller; 0 for none
-- Returns: ghosts, empty, suspect_waiting (crashes of the first suspect that was not taken; 0 for none), lease_score, seconds, microseconds, rules (0 when nothing is stored, 2 for `dequeue_ordered`, else 1, or 3 when the queue is not to be ordered; with 2 nothing was taken), limited_by (`concurrency` or `rate` when that keeps tasks back), wait (microseconds until the next lease ends, or the turn of the caller), and id, message, crashes, pending_since (null if there is none) for each task
-- Uses: now, ceiling, take_tasks, stored_rules, read_limits, free_slots, free_tokens, spend_tokens, next_turn

local pending, paused, active, lease, limits, bucket = unpack(KEYS)
local task_prefix, token, limit, max_bytes, lease_seconds, suspect_from, suspect_room, now_seconds,
  now_microseconds, concurrency, rate, period, burst, held_turn = unpack(ARGV)
limit, held_turn = tonumber(limit), tonumber(held_turn)

local seconds, microseconds = now(now_seconds, now_microseconds)
local time = seconds * 1000000 + microseconds
local lease_score = ceiling(seconds, microseconds) + lease_seconds
local call = {
  pending = pending,
  active = active,
  lease = lease,
  task_prefix = task_prefix,
  token = token,
  lease_score = lease_score,
  max_bytes = tonumber(max_bytes),
  suspect_from = tonumber(suspect_from),
  suspect_room = suspect_room,
}
local rules = stored_rules(limits)
local ghosts, empty, suspect_waiting, taken, reply = 0, 0, 0, 0, {}
local limited_by, wait = '', 0
if redis.call('EXISTS', paused) == 1 then
  empty = 1
elseif rules ~= 2 then
  local most, interval, saved = read_limits(limits, concurrency, rate, period, burst)
  local slots = free_slots(lease, most, seconds)
  local tokens, full_at = free_tokens(bucket, interval, saved, time)
  local room = math.min(limit, slots, tokens)
  ghosts, empty, suspect_waiting, taken, reply = take_tasks(call, room)
  if interval and taken > 0 then
    full_at = spend_tokens(bucket, interval, time, full_at, taken)
  end
  if room < limit and taken == room then
    if redis.call('EXISTS', pending) == 0 then
      empty = 1
    elseif taken == slots then
      limited_by = 'concurrency'
      local ends = redis.call('ZRANGEBYSCORE', lease, '(' .. seconds, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
      wait = ends * 1000000 - time
    else
      limited_by = 'rate'
      local held = taken == 0 and held_turn or 0
      wait = math.max(1, math.ceil(next_turn(bucket, interval, saved, time, full_at, held) - time))
    end
  end
end
return { ghosts, empty, suspect_waiting, lease_score, seconds, microseconds, rules, limited_by, wait,
  unpack(reply) }
