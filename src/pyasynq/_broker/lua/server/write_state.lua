#!lua flags=allow-oom
-- Writes what a server says of itself, and the tasks it is working on.
-- KEYS[1] server: its record
-- KEYS[2] workers: hash of its tasks
-- ARGV[1] ttl: seconds after which both vanish
-- ARGV[2] info: what it says of itself
-- ARGV[3...] id, worker: for each task
-- Returns: 1

local server, workers = unpack(KEYS)
local ttl, info = unpack(ARGV, 1, 2)

redis.call('DEL', workers)
redis.call('SET', server, info, 'EX', ttl)
for at = 3, #ARGV, 2 do
  redis.call('HSET', workers, ARGV[at], ARGV[at + 1])
end
redis.call('EXPIRE', workers, ttl)
return 1
