#!lua flags=allow-oom
-- Read the first replies of foreign workers; one that is too long is removed.
-- KEYS[1] replies: list of the workers' replies
-- ARGV[1] most: number of replies
-- ARGV[2] longest: bytes of one reply
-- ARGV[3] most_bytes: total bytes after which no further reply is read
-- Returns: number of replies that were removed; then the other replies, oldest first

local replies = KEYS[1]
local most, longest, most_bytes = unpack(ARGV)

local found, bytes, at, removed = {}, 0, 0, 0
while #found < tonumber(most) and bytes < tonumber(most_bytes) do
  local reply = redis.call('LINDEX', replies, at)
  if not reply then
    break
  end
  if #reply > tonumber(longest) then
    redis.call('LREM', replies, 1, reply)
    removed = removed + 1
  else
    found[#found + 1] = reply
    bytes = bytes + #reply
    at = at + 1
  end
end
return { removed, unpack(found) }
