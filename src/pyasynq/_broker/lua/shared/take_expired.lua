-- Remove tasks with expired leases from `active` and `lease`. Tasks are in ARGV (id, token, lease_score, from
-- `first` on, every `stride`). A task is taken if it has not changed since it was seen, and its lease ended
-- long enough ago. That is `own_slack` seconds, or `foreign_slack` for a task without a token; empty skips
-- this check. Ids without a task are dropped. Return the positions in ARGV of the tasks taken, and the ids of
-- the others. `store`, unless it is nil, adds the tasks at these positions to another collection with
-- `redis.pcall`, and returns its reply. If that is an error, all tasks are put back, and the script fails.
-- Uses: give_up, is_error
local function take_expired(active, lease, task_prefix, own_slack, foreign_slack, seconds, store, first, stride)
  local held, refused, messages = {}, {}, {}
  -- Everything is read before anything is written: a key of the wrong type fails here.
  for at = first, #ARGV, stride do
    local id, token, seen = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'x:attempt')
    local score = redis.call('ZSCORE', lease, id) or ''
    local slack = token == '' and foreign_slack or own_slack
    local over = score == '' or slack == '' or tonumber(score) <= seconds - tonumber(slack)
    if (fields[2] or '') == token and score == seen and over then
      messages[at] = fields[1] or ''
    end
  end
  for at = first, #ARGV, stride do
    local id, message = ARGV[at], messages[at]
    local was_active = message and redis.call('LREM', active, -1, id) == 1
    if message then
      redis.call('ZREM', lease, id)
    end
    if was_active and message ~= '' then
      held[#held + 1] = at
    else
      refused[#refused + 1] = id
      if message == '' then
        redis.call('DEL', task_prefix .. id)
      end
    end
  end
  local reply = store and #held > 0 and store(held)
  if is_error(reply) then
    for i = #held, 1, -1 do
      local id, seen = ARGV[held[i]], ARGV[held[i] + 2]
      redis.call('RPUSH', active, id)
      if seen ~= '' then
        redis.call('ZADD', lease, seen, id)
      end
    end
    give_up(reply)
  end
  return held, refused
end
