-- Return the token at the beginning of an entry; nil for bytes that are not an entry.
local function token_of(entry)
  return entry:match('^{"token":"([%w_-]+)"')
end
