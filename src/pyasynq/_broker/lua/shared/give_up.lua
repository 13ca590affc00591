-- End the script with an error that `redis.pcall` returned, for use when all writes have been undone. Redis 6.2
-- does not support errors that are tables.
local function give_up(reply)
  error(redis.REDIS_VERSION and reply or '-' .. reply.err, 0)
end
