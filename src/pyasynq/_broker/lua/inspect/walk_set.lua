#!lua flags=no-writes
-- Lists tasks of a sorted set from the highest score down, from a place that is not a position.
-- KEYS[1] collection: sorted set of ids
-- ARGV[1] task_prefix: key of a task without the id at its end
-- ARGV[2] score: of the last task that was looked at; empty begins at the highest
-- ARGV[3] id: of that task
-- ARGV[4] low: the lowest score
-- ARGV[5] high: the highest score
-- ARGV[6] count: positions to look at
-- ARGV[7] most: tasks to find
-- ARGV[8] max_bytes: ends the call once so much is read
-- ARGV[9...] kind, text: for each that a task must have, see take_texts
-- Returns: positions looked at, 1 if there is more to look at, id and score of the last one (empty for none), and id, message, state, score, result, crashes, trace, token, pending_since, progress: for each task; the last seven may be null
-- Uses: rank_after, take_texts, read_matching

local collection = KEYS[1]
local task_prefix, score, id, low, high, count, most, max_bytes = unpack(ARGV, 1, 8)

local kinds, values = {}, {}
for at = 9, #ARGV, 2 do
  kinds[#kinds + 1] = ARGV[at]
  values[#values + 1] = ARGV[at + 1]
end

local start = redis.call('ZCOUNT', collection, '(' .. high, '+inf')
if score ~= '' then
  start = math.max(start, rank_after(collection, score, id))
end
local stop = redis.call('ZCOUNT', collection, low, '+inf')
local entries = {}
if start < stop then
  entries = redis.call('ZREVRANGE', collection, start, math.min(stop, start + count) - 1, 'WITHSCORES')
end
local looked_at, found = read_matching(task_prefix, entries, take_texts(kinds, values), most, max_bytes)
local more = start + looked_at < stop and 1 or 0
return { looked_at, more, entries[2 * looked_at - 1] or '', entries[2 * looked_at] or '', unpack(found) }
