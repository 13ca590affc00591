-- Return a task to enqueue: its arguments, by name.
local function new_task(id, message, state, score, group, lock, lock_ttl, lock_rule, on_duplicate, on_conflict,
    process_at, payload, finished, once_ttl)
  return {
    id = id,
    message = message,
    state = state,
    score = score,
    group = group,
    lock = lock,
    lock_ttl = lock_ttl,
    lock_rule = lock_rule,
    on_duplicate = on_duplicate,
    on_conflict = on_conflict,
    process_at = process_at,
    payload = payload,
    finished = finished,
    once_ttl = once_ttl,
  }
end
