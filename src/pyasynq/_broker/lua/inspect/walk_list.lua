#!lua flags=no-writes
-- Lists tasks of a list from the newest on, from a place that is found by the ids around it.
-- KEYS[1] collection: list of ids, the newest at its left end
-- ARGV[1] task_prefix: key of a task without the id at its end
-- ARGV[2] left: how many older ids there may be behind the place; empty begins at the newest
-- ARGV[3] reach: how many ids on each side of that are looked through for the place
-- ARGV[4] count: positions to look at
-- ARGV[5] most: tasks to find
-- ARGV[6] max_bytes: ends the call once so much is read
-- ARGV[7] kept: how many ids on each side of the new place are returned
-- ARGV[8...] kind, value: `before` or `after` and an id on that side of the place, or a text, see take_texts
-- Returns: 1 if the place was found; positions looked at; how many older ids are left, or if the place was not found the length of the list; ids before the new place; ids after it; and id, message, state, score, result, crashes, trace, token, pending_since, progress: for each task; the last seven may be null
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
