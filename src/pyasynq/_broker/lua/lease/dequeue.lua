#!lua flags=allow-oom
-- Take tasks from the front of a queue without limits; give each a lease and the token of this call.
-- KEYS[1] pending: list of ids
-- KEYS[2] paused: exists while the queue is paused
-- KEYS[3] active: list of ids
-- KEYS[4] lease: sorted set of ids by the second their lease ends
-- KEYS[5] limits: hash of settings; exists while the queue has some
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] token: of this call
-- ARGV[3] limit: largest number of tasks
-- ARGV[4] max_bytes: maximum bytes of messages; a larger first message is taken alone
-- ARGV[5] lease_seconds: duration of the leases
-- ARGV[6] suspect_from: number of worker crashes that make a task a suspect; 0 for never
-- ARGV[7] suspect_room: 1 to take one suspect and nothing else; empty if none is known to wait
-- ARGV[8] now_seconds: empty for Redis' clock
-- ARGV[9] now_microseconds: within the second
-- Returns: ghosts, empty, suspect_waiting (crashes of the first suspect that was not taken; 0 for none), lease_score, seconds, microseconds, rules (0 for this script, 2 for `dequeue_ordered`, else those for `dequeue_limited`; then nothing was taken), limited_by, wait, and id, message, crashes, pending_since (null if there is none) for each task
-- Uses: now, ceiling, take_tasks, stored_rules

local pending, paused, active, lease, limits = unpack(KEYS)
local task_prefix, token, limit, max_bytes, lease_seconds, suspect_from, suspect_room, now_seconds,
  now_microseconds = unpack(ARGV)

local seconds, microseconds = now(now_seconds, now_microseconds)
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
local ghosts, empty, suspect_waiting, rules, reply, _ = 0, 0, 0, 0, {}
if redis.call('EXISTS', paused, limits) == 0 then
  ghosts, empty, suspect_waiting, _, reply = take_tasks(call, tonumber(limit))
else
  rules = stored_rules(limits)
  empty = rules == 0 and 1 or 0
end
return { ghosts, empty, suspect_waiting, lease_score, seconds, microseconds, rules, '', 0, unpack(reply) }
