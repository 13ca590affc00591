-- Write a copy of another queue's task, held: it is in no list, so that nothing runs it before `operate/release`.
-- KEYS[1] task: the task's hash
-- ARGV[1] id: of the task
-- ARGV[2] mark: text that identifies the operation
-- ARGV[3] place: the mark, and the state and score that the task gets at its release, with spaces between them
-- ARGV[4] lock: key of the lock that the task had in its queue, with the prefix of this one; empty for none
-- ARGV[5] left: remaining milliseconds of the lock; -1 for a lock without an end
-- ARGV[6...] name, value: of each field
-- Returns: `held`, `again` when the operation held it before, `exists` when its id is taken, or `locked`
-- Uses: owns_lock

local task = KEYS[1]
local id, mark, place, lock, left = unpack(ARGV, 1, 5)

local held = redis.call('HGET', task, 'x:held')
local is_ours = held and held:sub(1, #mark + 1) == mark .. ' '
if not is_ours and redis.call('EXISTS', task) == 1 then
  return 'exists'
end
if lock ~= '' and not owns_lock(task, id, lock) then
  if left == '-1' then
    if not redis.call('SET', lock, id, 'NX') then
      return 'locked'
    end
  elseif not redis.call('SET', lock, id, 'NX', 'PX', left) then
    return 'locked'
  end
end
redis.call('DEL', task)
redis.call('HSET', task, 'x:held', place)
for at = 6, #ARGV, 2 do
  redis.call('HSET', task, ARGV[at], ARGV[at + 1])
end
return is_ours and 'again' or 'held'
