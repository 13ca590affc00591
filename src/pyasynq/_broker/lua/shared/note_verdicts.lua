-- Store the verdicts of leased attempts until the second `forget_at`, at most 600 seconds from now; id and
-- token are at these positions in ARGV. A member of the sorted set is token, verdict and id. Delete the
-- verdicts in `old`, and the oldest ones beyond 20,000.
local function note_verdicts(verdicts, verdict, forget_at, positions, old)
  if #positions == 0 then
    return
  end
  local added = {}
  for _, at in ipairs(positions) do
    added[#added + 1] = forget_at
    added[#added + 1] = ARGV[at + 1] .. ' ' .. verdict .. ' ' .. ARGV[at]
  end
  if #old > 0 then
    redis.call('ZREM', verdicts, unpack(old))
  end
  redis.call('ZADD', verdicts, unpack(added))
  redis.call('ZREMRANGEBYRANK', verdicts, 0, -20001)
  redis.call('EXPIRE', verdicts, 660)
end
