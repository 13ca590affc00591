-- Delete the hashes and locks of new tasks, and end the script, if `reply` is an error. `reply` was returned
-- by `redis.pcall` when the tasks were added to their collection.
-- Uses: give_up, is_error
local function keep_created(reply, task_prefix, ids, locks)
  if is_error(reply) then
    for _, id in ipairs(ids) do
      redis.call('DEL', task_prefix .. id)
    end
    for _, lock in ipairs(locks) do
      redis.call('DEL', lock)
    end
    give_up(reply)
  end
end
