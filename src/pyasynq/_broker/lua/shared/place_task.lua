-- Puts a new task where its state says, with its lock. A finished task with its id goes, and its lock with it.
-- Uses: take_out, release_lock, nanoseconds, ceiling
local function place_task(places, new, seconds, microseconds)
  local id = new.id
  local task = places.task_prefix .. id
  local old = take_out(places, id, '', '')
  if old then
    release_lock(task, id, old[4] or '')
    redis.call('DEL', task)
  end
  redis.call('HSET', task, 'msg', new.message, 'state', new.state)
  if new.lock ~= '' then
    redis.call('SET', new.lock, id, 'EX', new.lock_ttl)
  end
  if new.lock_rule ~= '' then
    redis.call('HSET', task, 'unique_key', new.lock, 'x:unique_ttl', new.lock_rule)
  end
  if new.state == 'pending' then
    redis.call('HSET', task, 'pending_since', nanoseconds(seconds, microseconds))
    redis.call('LPUSH', places.pending, id)
  elseif new.state == 'aggregating' then
    redis.call('HSET', task, 'group', new.group)
    redis.call('ZADD', places.group_prefix .. new.group, ceiling(seconds, microseconds), id)
    redis.call('SADD', places.groups, new.group)
  else
    redis.call('ZADD', places.scheduled, new.score, id)
    if new.group ~= '' then
      -- The field `group` would make a forwarder of Go strand the task in a group that nobody knows of.
      redis.call('HSET', task, 'x:group', new.group)
    end
  end
end
