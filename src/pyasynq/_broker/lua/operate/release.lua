#!lua flags=allow-oom
-- Put tasks that `operate/hold` has written into the collections of their states, or delete them.
-- KEYS[1] pending: list of ids
-- KEYS[2] scheduled: sorted set of ids by the second they are due
-- KEYS[3] retry: sorted set of ids by the second they are due
-- KEYS[4] archived: sorted set of ids by the second they were archived
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] mark: text that identifies the operation
-- ARGV[3...] id, fate: for each task; the fate is `place`, `again` for one that the operation may have held for long, or `drop` for one that is still in its own queue
-- Returns: number of tasks released, and a list of id and reason: `missing` for each task to release that is not held
-- Uses: owns_lock

local pending, scheduled, retry, archived = unpack(KEYS)
local task_prefix, mark = unpack(ARGV, 1, 2)

local sets = { scheduled = scheduled, retry = retry, archived = archived }
local refused, done = {}, 0
for at = 3, #ARGV, 2 do
  local id, fate = ARGV[at], ARGV[at + 1]
  local task = task_prefix .. id
  local fields = redis.call('HMGET', task, 'x:held', 'unique_key')
  local state, score
  if fields[1] and fields[1]:sub(1, #mark + 1) == mark .. ' ' then
    state, score = fields[1]:sub(#mark + 2):match('(%S+) ?(%S*)')
  end
  if not state then
    if fate ~= 'drop' then
      refused[#refused + 1] = id
      refused[#refused + 1] = 'missing'
    end
  elseif fate == 'drop' then
    if owns_lock(task, id, fields[2] or '') then
      redis.call('DEL', fields[2])
    end
    redis.call('DEL', task)
  else
    redis.call('HDEL', task, 'x:held')
    if sets[state] then
      redis.call('ZADD', sets[state], score, id)
    else
      if fate == 'again' then
        -- The doctor may have put the held task there as an orphan, while the operation was interrupted.
        redis.call('LREM', pending, 1, id)
      end
      redis.call('LPUSH', pending, id)
    end
    done = done + 1
  end
end
return { done, refused }
