-- Return the entries for `note_lost` to delete, read before anything is written; nothing if no token in ARGV (from `first`
-- on, every `stride`) says that its attempt was leased.
-- Uses: old_verdicts
local function old_lost(verdicts, seconds, first, stride)
  for i = first, #ARGV, stride do
    if ARGV[i]:sub(-7) == '/leased' then
      return old_verdicts(verdicts, 'lost', seconds + 600)
    end
  end
  return {}
end
