-- Stores the record of an API key if it has the expected one; an equal record changes nothing.
-- KEYS[1] apikeys: hash of id and record
-- ARGV[1] key_id: of the key
-- ARGV[2] expected: record; empty for a key that is to be new
-- ARGV[3] most: keys that the hash may hold
-- ARGV[4] record: the new one
-- Returns: 1 if it is stored, 0 if another record is, -1 if there is no room

local apikeys = KEYS[1]
local key_id, expected, most, record = unpack(ARGV)

local stored = redis.call('HGET', apikeys, key_id) or ''
-- A call that is sent again after its reply was lost finds its own work.
if stored == record then
  return 1
end
if stored ~= expected then
  return 0
end
if stored == '' and redis.call('HLEN', apikeys) >= tonumber(most) then
  return -1
end
redis.call('HSET', apikeys, key_id, record)
return 1
