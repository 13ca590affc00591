-- Return up to 100 verdicts for `note_verdicts` to delete. It is called before anything is written, so
-- that a key of the wrong type fails there.
local function old_verdicts(verdicts, verdict, forget_at)
  return verdict == '' and {} or redis.call('ZRANGEBYSCORE', verdicts, '-inf', forget_at - 600, 'LIMIT', 0, 100)
end
