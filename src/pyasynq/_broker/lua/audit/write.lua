#!lua flags=allow-oom
-- Append an entry to the audit in place of the entry that announced it, and trim the oldest entries.
-- KEYS[1] audit: stream
-- ARGV[1] replay: 1 if the call is resent after a lost reply
-- ARGV[2] max_length: approximate number of entries to keep
-- ARGV[3] nonce: unique text of this entry, by which a resent call finds it
-- ARGV[4] intent: position of the entry that this one replaces; empty for none
-- ARGV[5] entry: JSON
-- Returns: the position of the entry

local audit = KEYS[1]
local replay, max_length, nonce, intent, entry = unpack(ARGV)

if replay == '1' then
  for _, written in ipairs(redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 100)) do
    if written[2][2] == nonce then
      return written[1]
    end
  end
end
redis.call('XTRIM', audit, 'MAXLEN', '~', max_length)
if intent ~= '' then
  redis.call('XDEL', audit, intent)
end
return redis.call('XADD', audit, '*', 'nonce', nonce, 'entry', entry)
