#!lua flags=allow-oom
-- Record a refused call; beyond the limit of a minute, count it in the newest entry of this user.
-- KEYS[1] refused: stream
-- ARGV[1] max_length: approximate number of entries to keep
-- ARGV[2] limit: largest number of entries of one user in a minute
-- ARGV[3] who: user and address
-- ARGV[4] entry: JSON
-- Returns: number of further calls of this user that the newest entry counts

local refused = KEYS[1]
local max_length, limit, who, entry = unpack(ARGV)

-- Ids of stream entries are times of Redis' clock, so the minute is measured by that clock too.
local since = (tonumber(redis.call('TIME')[1]) - 60) * 1000
local found, newest = 0, nil
for _, written in ipairs(redis.call('XREVRANGE', refused, '+', string.format('%.0f', since), 'COUNT', 1000)) do
  if written[2][2] == who then
    found = found + 1
    newest = newest or written
  end
end
redis.call('XTRIM', refused, 'MAXLEN', '~', max_length)
local more = 0
if found >= tonumber(limit) then
  more = tonumber(newest[2][4]) + 1
  entry = newest[2][6]
  redis.call('XDEL', refused, newest[1])
end
redis.call('XADD', refused, '*', 'who', who, 'more', more, 'entry', entry)
return more
