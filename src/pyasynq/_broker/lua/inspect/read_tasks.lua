#!lua flags=no-writes
-- Read tasks by their ids.
-- KEYS[1] lease: sorted set of ids by the second their lease ends
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] most: largest number of tasks to find
-- ARGV[3] max_bytes: bytes of messages after which the call ends
-- ARGV[4...] kind, value: `id` and an id, or a text, see take_texts
-- Returns: number of ids examined, and id, message, state, score, result, crashes, trace, token, pending_since, progress: for each task; the score is the end of its lease; the last seven may be null
-- Uses: take_texts, read_matching

local lease = KEYS[1]
local task_prefix, most, max_bytes = unpack(ARGV, 1, 3)

local kinds, values, entries = {}, {}, {}
for at = 4, #ARGV, 2 do
  kinds[#kinds + 1] = ARGV[at]
  values[#values + 1] = ARGV[at + 1]
  if ARGV[at] == 'id' then
    entries[#entries + 1] = ARGV[at + 1]
    entries[#entries + 1] = redis.call('ZSCORE', lease, ARGV[at + 1])
  end
end
local looked_at, found = read_matching(task_prefix, entries, take_texts(kinds, values), most, max_bytes)
return { looked_at, unpack(found) }
