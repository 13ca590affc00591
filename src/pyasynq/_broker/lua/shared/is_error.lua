-- Return whether `redis.pcall` returned an error.
local function is_error(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
