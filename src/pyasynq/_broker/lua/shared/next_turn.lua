-- Returns the microsecond at which the caller is to come for a token. Every caller that waits gets a turn of
-- its own, one `interval` after that of the last, so that each token wakes one of them and not all. `held` is
-- the turn that the caller was given before, or 0: one that is still to come stays, and who has just missed
-- its token by a moment gets the next one.
local function next_turn(bucket, interval, burst, time, full_at, held)
  local next_token = full_at - (burst - 1) * interval
  -- So many callers may wait; a turn further off is from times when the rate was lower.
  local furthest = next_token + 1000 * interval
  if held > time and held <= furthest then
    return held
  elseif held > time - interval and held <= time then
    return next_token
  end
  local last = tonumber(redis.call('HGET', bucket, 'turn') or 0) or 0
  local turn = last < furthest and math.max(next_token, last + interval) or next_token
  -- A full Redis 6.2 refuses a script whose first write may grow; removing may not.
  redis.call('HDEL', bucket, 'turn')
  redis.call('HSET', bucket, 'turn', turn)
  redis.call('EXPIRE', bucket, math.ceil((math.max(turn, full_at) - time) / 1000000) + 60)
  return turn
end
