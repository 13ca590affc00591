-- Return the microsecond at which the caller should come for a token. Each waiting caller gets a turn of
-- its own, one `interval` after the previous one, so that a token wakes one of them and not all (thundering herd). `held` is
-- the turn that the caller was given before, or 0: a future one stays, and a caller that has just
-- missed its token gets the next one.
local function next_turn(bucket, interval, burst, time, full_at, held)
  local next_token = full_at - (burst - 1) * interval
  -- Largest number of waiting callers; a later turn dates from a lower rate.
  local furthest = next_token + 1000 * interval
  if held > time and held <= furthest then
    return held
  elseif held > time - interval and held <= time then
    return next_token
  end
  local last = tonumber(redis.call('HGET', bucket, 'turn') or 0) or 0
  local turn = last < furthest and math.max(next_token, last + interval) or next_token
  -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
  redis.call('HDEL', bucket, 'turn')
  redis.call('HSET', bucket, 'turn', turn)
  redis.call('EXPIRE', bucket, math.ceil((math.max(turn, full_at) - time) / 1000000) + 60)
  return turn
end
