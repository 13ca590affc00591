-- Store the verdict `lost` for ten minutes for those of these attempts that were leased, as their tokens say.
-- Ids and tokens are at these positions in ARGV. Delete the old verdicts that `old_lost` returned.
-- Uses: note_verdicts
local function note_lost(verdicts, positions, seconds, old)
  local leased = {}
  for _, at in ipairs(positions) do
    if ARGV[at + 1]:sub(-7) == '/leased' then
      leased[#leased + 1] = at
    end
  end
  note_verdicts(verdicts, 'lost', seconds + 600, leased, old)
end
