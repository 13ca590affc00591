#!lua flags=allow-oom
-- Deletes archived tasks that are too old or too many, up to 1,000.
-- KEYS[1] archived: sorted set of ids by the second they were archived
-- ARGV[1] task_prefix: what stands before an id in the key of a task
-- ARGV[2] max_size: how many archived tasks are kept
-- ARGV[3] cutoff: tasks archived in this second or before are deleted
-- Returns: trimmed, 1 if there is more to trim
-- Uses: trim_archived

local archived = KEYS[1]
local task_prefix, max_size, cutoff = unpack(ARGV)

local surplus = redis.call('ZCARD', archived) - max_size
return { trim_archived(archived, task_prefix, surplus, cutoff) }
