-- Return by position the callbacks of tasks (ids in ARGV from `first` on, every `stride`) that have not ended yet. If
-- there is one, the outbox is read too, so that a key of the wrong type fails before anything is written. Return also
-- the positions by id.
local function find_callbacks(task_prefix, first, stride)
  local finished, positions = {}, {}
  for at = first, #ARGV, stride do
    local callback, state = unpack(redis.call('HMGET', task_prefix .. ARGV[at], 'x:finished', 'state'))
    if callback and state ~= 'archived' and state ~= 'completed' then
      finished[at] = callback
      positions[ARGV[at]] = at
    end
  end
  if next(finished) then
    redis.call('HLEN', string.sub(task_prefix, 1, -3) .. 'x:outbox')
  end
  return finished, positions
end
