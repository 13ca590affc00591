-- Store the record of an API key if the stored record is the expected one (compare-and-set).
-- KEYS[1] apikeys: hash of id and record
-- ARGV[1] key_id: id of the key
-- ARGV[2] expected: expected stored record; empty for a new key
-- ARGV[3] most: largest number of keys in the hash
-- ARGV[4] record: record to store
-- Returns: 1 if the record is stored now, 0 if another one is stored, -1 if the hash is full

local apikeys = KEYS[1]
local key_id, expected, most, record = unpack(ARGV)

local stored = redis.call('HGET', apikeys, key_id) or ''
-- A call resent after a lost reply finds the record that it has written.
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
