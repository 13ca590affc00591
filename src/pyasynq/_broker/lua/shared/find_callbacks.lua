-- Return the completion callbacks of tasks that have not ended yet, by position in ARGV; and the positions by
-- id. The ids are in ARGV from `first` on, every `stride`. If there is a callback, the outbox is read too, so
-- that a key of the wrong type fails before anything is written. `known` holds the fields that `read_places`
-- has read; nil reads them.
local function find_callbacks(task_prefix, first, stride, known)
  local finished, positions = {}, {}
  for at = first, #ARGV, stride do
    local state, callback
    if known then
      state, callback = known[ARGV[at]][2], known[ARGV[at]][5]
    else
      state, callback = unpack(redis.call('HMGET', task_prefix .. ARGV[at], 'state', 'x:finished'))
    end
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
