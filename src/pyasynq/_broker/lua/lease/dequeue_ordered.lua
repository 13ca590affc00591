#!lua flags=allow-oom
-- Take the task in front of an ordered queue once the one before it has ended; otherwise as `dequeue`.
-- KEYS[1] pending: list of ids
-- KEYS[2] paused: exists while the queue is paused
-- KEYS[3] active: list of ids
-- KEYS[4] lease: sorted set of ids by the second their lease ends
-- KEYS[5] limits: hash of settings, which override those of the call
-- KEYS[6] bucket: hash of the microsecond at which all tokens are there again, and of the last one that was promised to a caller
-- KEYS[7] retry: sorted set of ids by the second they are due
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] token: of this call
-- ARGV[3] max_bytes: maximum bytes of messages; a larger first message is taken alone
-- ARGV[4] lease_seconds: duration of the lease
-- ARGV[5] suspect_from: number of worker crashes that make a task a suspect; 0 for never
-- ARGV[6] suspect_room: 1 to take one suspect and nothing else; empty if none is known to wait
-- ARGV[7] now_seconds: empty for Redis' clock
-- ARGV[8] now_microseconds: within the second
-- ARGV[9] rate: number of tasks that may start per period; empty for any
-- ARGV[10] period: in seconds
-- ARGV[11] burst: number of tasks that may start at once (size of the token bucket)
-- ARGV[12] held_turn: microsecond at which a token was promised to the caller; 0 for none
-- ARGV[13] declared: 1 if the caller's settings say that the queue is ordered; stored settings override it
-- Returns: ghosts, empty, suspect_waiting (crashes of the first suspect that was not taken; 0 for none), lease_score, seconds, microseconds, rules (2 when the queue is ordered; if not, nothing was taken), limited_by (`order` or `rate` when that keeps tasks back), wait (microseconds until the turn of the caller; 0 for `order`), and id, message, crashes, pending_since (null if there is none) for the task
-- Uses: now, ceiling, take_tasks, stored_rules, read_limits, free_tokens, spend_tokens, next_turn

local pending, paused, active, lease, limits, bucket, retry = unpack(KEYS)
local task_prefix, token, max_bytes, lease_seconds, suspect_from, suspect_room, now_seconds, now_microseconds,
  rate, period, burst, held_turn, declared = unpack(ARGV)
held_turn = tonumber(held_turn)

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
  ordered = true,
}
if declared == '1' and not redis.call('HGET', limits, 'ordered') then
  -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
  redis.call('HDEL', limits, 'ordered')
  redis.call('HSET', limits, 'ordered', 1)
end
local rules = stored_rules(limits)
local ghosts, empty, suspect_waiting, taken, reply = 0, 0, 0, 0, {}
local limited_by, wait = '', 0
if redis.call('EXISTS', paused) == 1 then
  empty = 1
elseif rules == 2 then
  local _, interval, saved = read_limits(limits, '', rate, period, burst)
  local tokens, full_at = free_tokens(bucket, interval, saved, time)
  -- Check the lists, not the leases: a dead worker's task stays the head until it is recovered.
  local is_held = redis.call('EXISTS', active, retry) > 0
  if not is_held and tokens > 0 then
    ghosts, empty, suspect_waiting, taken, reply = take_tasks(call, 1)
    if interval and taken > 0 then
      spend_tokens(bucket, interval, time, full_at, taken)
    end
  end
  if redis.call('EXISTS', pending) == 0 then
    empty = 1
  elseif is_held or taken > 0 then
    limited_by = 'order'
  elseif tokens < 1 then
    limited_by = 'rate'
    wait = math.ceil(next_turn(bucket, interval, saved, time, full_at, held_turn) - time)
  end
end
return { ghosts, empty, suspect_waiting, lease_score, seconds, microseconds, rules, limited_by, wait,
  unpack(reply) }
