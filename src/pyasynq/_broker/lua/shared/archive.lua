-- Archive the tasks at these positions in ARGV (id, token, lease_score, message, archived_at, trace, attempt,
-- progress).
-- Uses: write_outcome, release_finished
local function archive(archived, task_prefix, positions)
  local added = {}
  for _, at in ipairs(positions) do
    local id, _, _, message, archived_at, trace, attempt, progress = unpack(ARGV, at, at + 7)
    write_outcome(task_prefix .. id, 'archived', message, trace, attempt, progress)
    release_finished(task_prefix .. id, id)
    added[#added + 1] = archived_at
    added[#added + 1] = id
  end
  if #added > 0 then
    redis.call('ZADD', archived, unpack(added))
  end
end
