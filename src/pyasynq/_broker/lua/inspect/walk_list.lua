#!lua flags=no-writes
-- List tasks of a list, newest first, from a place that is found by the ids next to it.
-- KEYS[1] collection: list of ids, the newest at its left end
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] left: expected number of older ids after the place; empty begins at the newest id
-- ARGV[3] reach: number of ids on each side of the expected place that are searched
-- ARGV[4] count: number of positions to read
-- ARGV[5] most: largest number of tasks to find
-- ARGV[6] max_bytes: bytes of messages after which the call ends
-- ARGV[7] kept: number of ids to return from each side of the new place
-- ARGV[8...] kind, value: `before` or `after` and an id on that side of the place, or a text, see take_texts
-- Returns: 1 if the place was found; number of positions read; number of older ids left, or the length of the list if the place was not found; ids before the new place; ids after the new place; and id, message, state, score, result, crashes, trace, token, pending_since, progress: for each task; the last seven may be null
-- Uses: find_place, take_texts, read_matching

local collection = KEYS[1]
local task_prefix, left, reach, count, most, max_bytes, kept = unpack(ARGV, 1, 7)

local kinds, values, sides, known = {}, {}, {}, 0
for at = 8, #ARGV, 2 do
  local kind, value = ARGV[at], ARGV[at + 1]
  kinds[#kinds + 1] = kind
  values[#values + 1] = value
  if kind == 'before' or kind == 'after' then
    sides[value] = kind
    known = known + 1
  end
end

if left == '' then
  left = redis.call('LLEN', collection)
elseif known > 0 then
  left = find_place(collection, sides, tonumber(left), tonumber(reach))
  if not left then
    return { 0, 0, redis.call('LLEN', collection), {}, {} }
  end
end
left = tonumber(left)

local entries = {}
if left > 0 then
  for _, id in ipairs(redis.call('LRANGE', collection, -left, -math.max(0, left - count) - 1)) do
    entries[#entries + 1] = id
    entries[#entries + 1] = false
  end
end
local looked_at, found = read_matching(task_prefix, entries, take_texts(kinds, values), most, max_bytes)
left = left - looked_at
local before = redis.call('LRANGE', collection, -left - kept, -left - 1)
local after = {}
if left > 0 then
  after = redis.call('LRANGE', collection, -left, -math.max(0, left - kept) - 1)
end
return { 1, looked_at, left, before, after, unpack(found) }
