#!lua flags=allow-oom
-- Return the types of keys of one queue.
-- KEYS[1] pending: list of ids, which names the queue's slot
-- ARGV[1...] key: each key to read
-- Returns: the type of each key, `none` for one that is gone

local pending = KEYS[1]

local types = { redis.call('TYPE', pending).ok }
for at = 1, #ARGV, 1 do
  types[at] = redis.call('TYPE', ARGV[at]).ok
end
return types
