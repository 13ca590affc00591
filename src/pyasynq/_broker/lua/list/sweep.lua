#!lua flags=allow-oom
-- Forget dead workers of a list, count the free slots of the live ones, and search for the entry of each lease.
-- KEYS[1] entries: list that the workers take from
-- KEYS[2] workers: set of their names
-- KEYS[3] leases: hash of the lease of each entry, by its token
-- KEYS[4] replies: list of the workers' replies about entries
-- ARGV[1] alive_prefix: of the heartbeat keys
-- ARGV[2] held_prefix: of the lists of entries that workers have taken
-- ARGV[3] ttl: seconds for which the keys are kept
-- ARGV[4...] name: of each worker to forget if it has no heartbeat
-- Returns: living (number of workers), free (number of entries that they could take), number of replies, names of the workers without a heartbeat that are not forgotten; then of each lease its token, what was stored, and whether its entry is anywhere (1 or 0)
-- Uses: count_slots, token_of

local entries, workers, leases, replies = unpack(KEYS)
local alive_prefix, held_prefix, ttl = unpack(ARGV, 1, 3)

-- A full Redis 6.2 refuses a script whose first write may add data; no write of this script does.
for _, key in ipairs(KEYS) do
  redis.call('EXPIRE', key, ttl)
end
local dead = {}
for at = 4, #ARGV, 1 do
  dead[ARGV[at]] = true
end
local living, slots, held, without = count_slots(workers, alive_prefix, held_prefix)
local silent = {}
for _, worker in ipairs(without) do
  if dead[worker] then
    redis.call('DEL', held_prefix .. worker)
    redis.call('SREM', workers, worker)
  else
    silent[#silent + 1] = worker
  end
end
local said = redis.call('LLEN', replies)
local found = { living, slots - held - redis.call('LLEN', entries), said, silent }
local stored = redis.call('HGETALL', leases)
if #stored == 0 then
  return found
end
local places = { entries }
for _, worker in ipairs(redis.call('SRANDMEMBER', workers, 1000)) do
  redis.call('EXPIRE', held_prefix .. worker, ttl)
  places[#places + 1] = held_prefix .. worker
end
-- A sweep reads 1,000 workers at most: with more, an unread worker may hold the entry.
local is_sample = redis.call('SCARD', workers) > 1000
local here = {}
for _, place in ipairs(places) do
  -- The key of a worker may have a wrong type.
  for _, entry in ipairs(redis.pcall('LRANGE', place, 0, 999)) do
    here[token_of(entry) or ''] = true
  end
end
local texts = table.concat(redis.call('LRANGE', replies, 0, 99), ' ')
for at = 1, #stored, 2 do
  local token = stored[at]
  local is_here = is_sample or said > 100 or here[token] or texts:find(token, 1, true)
  found[#found + 1] = token
  found[#found + 1] = stored[at + 1]
  found[#found + 1] = is_here and 1 or 0
end
return found
