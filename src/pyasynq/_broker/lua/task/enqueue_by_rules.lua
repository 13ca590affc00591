-- Enqueue tasks with rules for conflicts: another task may hold the lock, or have the id.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- KEYS[5] completed: sorted set of ids by the second they are to be deleted
-- KEYS[6] groups: set of the names of groups
-- KEYS[7] aggregation_sets: sorted set of the keys of aggregation sets by the second they are stale
-- KEYS[8] lease: sorted set of ids by the second their lease ends
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] task_prefix: prefix of task keys, before the id
-- ARGV[3] group_prefix: prefix of group keys, before the name
-- ARGV[4] now_seconds: empty for Redis' clock
-- ARGV[5] now_microseconds: within the second
-- ARGV[6...] id, message, state, score, group, lock, lock_ttl, lock_rule, on_duplicate, on_conflict, process_at, payload, finished, once_ttl: for each task; process_at and payload are for the task whose payload is replaced
-- Returns: position (from 0), code, and for a lock that is held its holder as `inspect/get_task` returns it: for each task that was not created; the code is 0 for an id that exists, -1 for a lock that is held, -4 for one that was enqueued once (the holder is the task with its id), 3 when the holder's payload was replaced
-- Uses: now, read_task, new_task, judge_task, place_task, replace_payload

local pending, scheduled, retry, archived, completed, groups, aggregation_sets, lease = unpack(KEYS)
local replay, task_prefix, group_prefix, now_seconds, now_microseconds = unpack(ARGV, 1, 5)

local places = {
  pending = pending,
  active = lease,
  scheduled = scheduled,
  retry = retry,
  archived = archived,
  completed = completed,
  groups = groups,
  aggregation_sets = aggregation_sets,
  task_prefix = task_prefix,
  group_prefix = group_prefix,
}
local seconds, microseconds = now(now_seconds, now_microseconds)

local function leaves()
  return false
end

local function describe(holder)
  local found = read_task(task_prefix .. holder, holder, false)
  if found[3] and found[3] ~= 'pending' and places[found[3]] then
    found[4] = redis.call('ZSCORE', places[found[3]], holder)
  end
  return found
end

local refused = {}
for at = 6, #ARGV, 14 do
  local new = new_task(unpack(ARGV, at, at + 13))
  local code, holder = judge_task(places, replay, new, leaves)
  if code == -1 and new.on_duplicate == 'replace_payload' then
    if replace_payload(places, replay, new, holder, seconds) then
      code = 3
    end
  end
  if code == 1 then
    place_task(places, new, seconds, microseconds)
  elseif code == 0 then
    refused[#refused + 1] = { (at - 6) / 14, 0 }
  elseif code ~= 2 and not (replay == '1' and holder == new.id) then
    refused[#refused + 1] = { (at - 6) / 14, code, unpack(describe(holder)) }
  end
end
return refused
