#!lua flags=allow-oom
-- Raise a counter to its smallest correct value, or delete one that is not a number.
-- KEYS[1] source: a counter of tasks
-- ARGV[1] least: smallest value that is right according to other counters; empty deletes the counter
-- ARGV[2] may_begin: 1 to create a missing counter
-- Returns: 1 if it was done

local source = KEYS[1]
local least, may_begin = unpack(ARGV)

local value = redis.call('GET', source)
if value and not string.match(value, '^-?%d+$') then
  return redis.call('DEL', source)
elseif least == '' or not (value or may_begin == '1') or tonumber(value or 0) >= tonumber(least) then
  return 0
end
-- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
local left = redis.call('TTL', source)
redis.call('DEL', source)
redis.call('SET', source, least)
if value and left ~= -1 then
  redis.call('EXPIRE', source, left + 1)
end
return 1
