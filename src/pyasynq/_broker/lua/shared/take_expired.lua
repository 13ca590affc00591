-- Takes out of `active` and `lease` the tasks (id, token, lease_score, in ARGV from `first` on, every
-- `stride`) that are as they were seen and whose lease ended up to the cutoff of their kind; an empty
-- `own_slack` knows no cutoff. Ids without a task are dropped. Returns the positions in ARGV of those
-- taken, and the ids of the others.
local function take_expired(active, lease, task_prefix, own_slack, foreign_slack, seconds, first, stride)
  local held, refused = {}, {}
  for at = first, #ARGV, stride do
    local id, token, seen = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'x:attempt')
    local score = redis.call('ZSCORE', lease, id) or ''
    local slack = token == '' and foreign_slack or own_slack
    local over = score == '' or slack == '' or tonumber(score) <= seconds - tonumber(slack)
    if (fields[2] or '') == token and score == seen and over then
      local was_active = redis.call('LREM', active, -1, id) == 1
      redis.call('ZREM', lease, id)
      if was_active and fields[1] then
        held[#held + 1] = at
      else
        refused[#refused + 1] = id
        if not fields[1] then
          redis.call('DEL', task_prefix .. id)
        end
      end
    else
      refused[#refused + 1] = id
    end
  end
  return held, refused
end
