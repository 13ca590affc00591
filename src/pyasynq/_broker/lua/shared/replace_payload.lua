-- Give the holder of a new task's lock the payload of the new task, and its process time if there is one (`0`
-- is now). Return whether this was possible: the holder must be waiting, and have the same type. On a replay,
-- return true also if the first run has done it.
-- Uses: splice_message, take_out, rename_group
local function replace_payload(places, replay, new, holder, seconds)
  local task = places.task_prefix .. holder
  local fields = redis.call('HMGET', task, 'msg', 'state', 'group')
  local state, group = fields[2], fields[3] or ''
  local message, type_field = splice_message(fields[1] or '', new.payload)
  local _, new_type_field = splice_message(new.message, '')
  if type_field ~= new_type_field then
    -- The holder of a named lock may be a task whose handler cannot read this payload.
    return false
  end
  local waits = state == 'pending' or state == 'scheduled' or state == 'retry'
  if state == 'aggregating' then
    waits = redis.call('ZSCORE', places.group_prefix .. group, holder)
  end
  if not (fields[1] and message and waits) then
    return replay == '1' and fields[1] and fields[1] == message
  end
  -- A full Redis 6.2 refuses a script whose first write may add data; a removal is allowed.
  redis.call('HDEL', task, 'msg')
  redis.call('HSET', task, 'msg', message)
  local is_timed = state == 'scheduled' or state == 'retry'
  local due = new.process_at
  if due == '0' then
    -- The forwarder moves the task to pending, since it handles groups and ordered queues.
    due = is_timed and seconds or ''
  end
  if due ~= '' and not is_timed then
    take_out(places, holder, '', '')
    redis.call('HDEL', task, 'pending_since')
    rename_group(task, 'group', 'x:group')
    redis.call('HSET', task, 'state', 'scheduled')
  end
  if due ~= '' then
    redis.call('ZADD', is_timed and places[state] or places.scheduled, due, holder)
  end
  if redis.call('PTTL', new.lock) < new.lock_ttl * 1000 then
    redis.call('PEXPIRE', new.lock, new.lock_ttl * 1000)
  end
  return true
end
