-- Store or delete the configuration of a task type if it has the expected version (compare-and-set).
-- KEYS[1] conf: hash: by task type the version, a space, and the content; the field with an empty name has the highest version
-- ARGV[1] now_seconds: Unix time; empty for Redis' clock
-- ARGV[2] now_microseconds: of the same second
-- ARGV[3] name: of the type
-- ARGV[4] expected: version; 0 for a type without a configuration, empty for any
-- ARGV[5] most: largest number of configurations in the hash
-- ARGV[6] content: of the configuration; empty to delete it
-- Returns: `stored` and the new version; `other` and the present version (0 for none); or `full` and 0 if the limit is reached
-- Uses: now

local conf = KEYS[1]
local now_seconds, now_microseconds, name, expected, most, content = unpack(ARGV)

local stored = redis.call('HGET', conf, name)
local version, before = string.match(stored or '', '^(%d+) (.*)$')
version = tonumber(version) or 0
-- A call resent after a lost reply finds the record that it has written.
if stored and before == content then
  return { 'stored', version }
end
if expected ~= '' and tonumber(expected) ~= version then
  return { 'other', version }
end
if content == '' then
  if not stored then
    return { 'other', 0 }
  end
elseif not stored and redis.call('HLEN', conf) > tonumber(most) then
  return { 'full', 0 }
end
-- A version is a time in milliseconds, so that a type deleted and stored again never gets an earlier version.
local seconds, microseconds = now(now_seconds, now_microseconds)
local highest = tonumber(redis.call('HGET', conf, '') or 0) or 0
version = math.max(highest + 1, seconds * 1000 + math.floor(microseconds / 1000))
redis.call('HSET', conf, '', string.format('%.0f', version))
if content == '' then
  redis.call('HDEL', conf, name)
else
  redis.call('HSET', conf, name, string.format('%.0f ', version) .. content)
end
return { 'stored', version }
