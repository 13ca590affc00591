-- Return the JSON of a task's attempts with one more in front: the newest 10, each on a line of its own.
local function add_attempt(task, attempt)
  local before = redis.call('HGET', task, 'x:attempts')
  if not before then
    return '[' .. attempt .. ']'
  end
  local line_end = 0
  for _ = 1, 9 do
    line_end = before:find('\n', line_end + 1, true)
    if not line_end then
      return '[' .. attempt .. ',\n' .. before:sub(2)
    end
  end
  return '[' .. attempt .. ',\n' .. before:sub(2, line_end - 2) .. ']'
end
