#!lua flags=allow-oom
-- Write a server's record, and the tasks it is working on.
-- KEYS[1] server: its record
-- KEYS[2] workers: hash of its tasks
-- ARGV[1] ttl: seconds after which both expire
-- ARGV[2] adds: 1 to keep the tasks that the previous call wrote
-- ARGV[3] info: the server's record
-- ARGV[4...] id, worker: for each task
-- Returns: 1

local server, workers = unpack(KEYS)
local ttl, adds, info = unpack(ARGV, 1, 3)

if adds ~= '1' then
  redis.call('DEL', workers)
end
redis.call('SET', server, info, 'EX', ttl)
for at = 4, #ARGV, 2 do
  redis.call('HSET', workers, ARGV[at], ARGV[at + 1])
end
redis.call('EXPIRE', workers, ttl)
return 1
