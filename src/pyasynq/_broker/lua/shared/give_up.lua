-- Ends the script with an error that `redis.pcall` returned, for use when all writes have been undone. Redis 6.2
-- knows no error that is a table.
local function give_up(reply)
  error(redis.REDIS_VERSION and reply or '-' .. reply.err, 0)
end
