-- Read the tasks of entries (ids and scores in turn), until `most` tasks match or `max_bytes` are read.
-- Return the number of entries examined, and the tasks in the form that `read_task` returns.
-- Uses: has_texts, read_task
local function read_matching(task_prefix, entries, texts, most, max_bytes)
  local found, bytes, call = {}, 0, redis.call
  most, max_bytes = tonumber(most), tonumber(max_bytes)
  for i = 1, #entries, 2 do
    local task, id, read = task_prefix .. entries[i], entries[i], nil
    if #texts == 0 then
      read = read_task(task, id, entries[i + 1])
    else
      local message = call('HGET', task, 'msg')
      bytes = bytes + #(message or '')
      if message and has_texts(texts, task, id, message) then
        read = read_task(task, id, entries[i + 1])
      end
    end
    if read and read[2] and read[3] then
      bytes = bytes + #read[2] + #(read[5] or '') + #(read[7] or '')
      found[#found + 1] = read
    end
    if #found >= most or bytes >= max_bytes then
      return (i + 1) / 2, found
    end
  end
  return #entries / 2, found
end
