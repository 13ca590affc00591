-- Write an outbox entry for each ended task that has a completion callback, and add address and entry to
-- `told`. The ids of the tasks are at these positions in ARGV. The attempt's token is `token_at` arguments
-- after the id, and its report `report_at` arguments after it; nil if the task ended without an attempt. An
-- entry is a row of netstrings.
local function write_endings(task_prefix, finished, positions, outcome, token_at, report_at, told)
  local ended_at
  for _, at in ipairs(positions) do
    local id, callback = ARGV[at], finished[at]
    if callback then
      if not ended_at then
        local seconds, microseconds = unpack(redis.call('TIME'))
        ended_at = seconds .. '.' .. string.format('%06d', microseconds)
      end
      -- A task that is run again by hand ends again.
      local ends = redis.pcall('HINCRBY', task_prefix .. id, 'x:ends', 1)
      ends = type(ends) == 'number' and ends or 0
      local address = redis.sha1hex(ends .. ' ' .. #id .. ' ' .. id .. ' ' .. callback)
      local token, report = token_at and ARGV[at + token_at] or '', report_at and ARGV[at + report_at] or ''
      local parts = {}
      for i, value in ipairs({ 'enqueue', ended_at, id, outcome, token, report, callback }) do
        parts[i] = #value .. ':' .. value .. ','
      end
      local entry = table.concat(parts)
      redis.call('HSET', string.sub(task_prefix, 1, -3) .. 'x:outbox', address, entry)
      told[#told + 1] = { address, entry }
    end
  end
end
