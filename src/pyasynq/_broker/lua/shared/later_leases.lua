-- Find outdated claims: return those whose lease in Redis ends later than the claim says, as true by id, or
-- nil if there are none. Claims are in ARGV (id, token, lease_score, from `first` on, every `stride`).
local function later_leases(lease, first, stride)
  local least = ARGV[first + 2]
  for at = first + stride, #ARGV, stride do
    -- Most claims of a call are of the same second, and equal texts are compared fastest.
    if ARGV[at + 2] ~= least and tonumber(ARGV[at + 2]) < tonumber(least) then
      least = ARGV[at + 2]
    end
  end
  -- Claims have the latest end that was requested: usually no lease ends after the earliest of them.
  if redis.call('ZCOUNT', lease, '(' .. least, '+inf') == 0 then
    return nil
  end
  local ids, later = {}, {}
  for at = first, #ARGV, stride do
    ids[#ids + 1] = ARGV[at]
  end
  for i, score in ipairs(redis.call('ZMSCORE', lease, unpack(ids))) do
    later[ids[i]] = score and tonumber(score) > tonumber(ARGV[first + (i - 1) * stride + 2])
  end
  return later
end
