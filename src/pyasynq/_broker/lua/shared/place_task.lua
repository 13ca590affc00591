-- Put a new task into the collection of its state, with its lock. Delete a finished task with its id, and its lock.
-- Unless there is such a task, a key of the wrong type fails before anything is written.
-- Uses: give_up, is_error, join_group, take_out, release_lock, nanoseconds, ceiling, own_key
local function place_task(places, new, seconds, microseconds)
  local id = new.id
  local task = places.task_prefix .. id
  local old = take_out(places, id, '', '')
  if old then
    release_lock(task, id, old[4] or '')
    redis.call('DEL', task)
  end
  if new.state == 'pending' then
    redis.call('LPUSH', places.pending, id)
  elseif new.state == 'aggregating' then
    local failed = join_group(places.groups, places.group_prefix, new.group, ceiling(seconds, microseconds), id)
    if is_error(failed) then
      give_up(failed)
    end
  else
    redis.call('ZADD', places.scheduled, new.score, id)
  end
  redis.call('HSET', task, 'msg', new.message, 'state', new.state)
  if new.lock ~= '' then
    redis.call('SET', new.lock, id, 'EX', new.lock_ttl)
  end
  if new.lock_rule ~= '' then
    redis.call('HSET', task, 'unique_key', new.lock, 'x:unique_ttl', new.lock_rule)
  end
  if new.finished ~= '' then
    redis.call('HSET', task, 'x:finished', new.finished)
    redis.call('SET', own_key(places.task_prefix, 'callbacks'), '1')
  end
  if new.once_ttl ~= '' then
    redis.call('SET', own_key(places.task_prefix, 'once:' .. id), '1', 'EX', new.once_ttl)
  end
  if new.state == 'pending' then
    redis.call('HSET', task, 'pending_since', nanoseconds(seconds, microseconds))
  elseif new.state == 'aggregating' then
    redis.call('HSET', task, 'group', new.group)
  elseif new.group ~= '' then
    -- The field `group` would make a forwarder of Go strand the task in an unlisted group.
    redis.call('HSET', task, 'x:group', new.group)
  end
end
