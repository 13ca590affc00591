#!lua flags=no-writes
-- List tasks of a sorted set by descending score, after the given score and id.
-- KEYS[1] collection: sorted set of ids
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] score: score of the last task read before; empty begins at the highest score
-- ARGV[3] id: id of that task
-- ARGV[4] low: the lowest score
-- ARGV[5] high: the highest score
-- ARGV[6] count: number of positions to read
-- ARGV[7] most: largest number of tasks to find
-- ARGV[8] max_bytes: bytes of messages after which the call ends
-- ARGV[9...] kind, text: each test that a task must pass, see take_texts
-- Returns: number of positions read, 1 if there are more, id and score of the last one (empty for none), and id, message, state, score, result, crashes, trace, token, pending_since, progress: for each task; the last seven may be null
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
