-- Return the old verdicts that `note_lost` is to delete; they are read before anything is written. Return an
-- empty list if none of the tokens in ARGV (from `first` on, every `stride`) is that of a leased attempt.
-- Uses: old_verdicts
local function old_lost(verdicts, seconds, first, stride)
  for i = first, #ARGV, stride do
    if ARGV[i]:sub(-7) == '/leased' then
      return old_verdicts(verdicts, 'lost', seconds + 600)
    end
  end
  return {}
end
