-- Return a key of the queue that Asynq does not have, by its name behind `x:`.
local function own_key(task_prefix, name)
  return string.sub(task_prefix, 1, -3) .. 'x:' .. name
end
