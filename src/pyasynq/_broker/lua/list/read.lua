#!lua flags=allow-oom
-- Read the first replies of foreign workers; one that is too long is removed.
-- KEYS[1] replies: list of them
-- ARGV[1] most: number of replies
-- ARGV[2] longest: bytes of one reply
-- ARGV[3] most_bytes: of all together, from which no further one is read
-- Returns: number of those that were removed; then the replies, oldest first

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
