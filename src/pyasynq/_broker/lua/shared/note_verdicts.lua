-- Keep the verdicts of leased attempts (id, token at these positions in ARGV) under token, verdict and id, until the
-- second `forget_at`, which is at most 600 seconds from now. Each call deletes these old verdicts; 20,000 stay.
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
