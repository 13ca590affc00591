-- Continue if new tasks were stored. If `reply`, which `redis.pcall` returned for that, is an error, delete their
-- hashes and locks, and end the script.
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
