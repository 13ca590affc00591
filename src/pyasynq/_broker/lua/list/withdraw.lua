#!lua flags=allow-oom
-- End an entry: forget its lease and a reply, and take it out of the list unless a worker has it.
-- KEYS[1] entries: list that the workers take from
-- KEYS[2] leases: hash of the lease of each entry, by its token
-- KEYS[3] replies: list of the workers' replies about entries
-- ARGV[1] token: of the entry
-- ARGV[2] reply: reply to remove, which was settled or refused; empty for none
-- Returns: 1 if no worker had taken the entry, else 0
-- Uses: token_of

local entries, leases, replies = unpack(KEYS)
local token, reply = unpack(ARGV)

redis.call('HDEL', leases, token)
redis.call('LREM', replies, 0, reply)
for _, entry in ipairs(redis.call('LRANGE', entries, 0, 999)) do
  if token_of(entry) == token then
    return redis.call('LREM', entries, 1, entry)
  end
end
return 0
