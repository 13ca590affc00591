#!lua flags=allow-oom
-- Delete up to 1,000 archived tasks that are too old or too many.
-- KEYS[1] archived: sorted set of ids by the second they were archived
-- ARGV[1] task_prefix: prefix of task keys, before the id
-- ARGV[2] max_size: number of archived tasks to keep
-- ARGV[3] cutoff: tasks archived in this second or before are deleted
-- Returns: trimmed, 1 if there is more to trim
-- Uses: trim_archived

local archived = KEYS[1]
local task_prefix, max_size, cutoff = unpack(ARGV)

local surplus = redis.call('ZCARD', archived) - max_size
return { trim_archived(archived, task_prefix, surplus, cutoff) }
