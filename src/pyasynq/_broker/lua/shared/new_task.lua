-- Returns a task that is to be enqueued: its arguments, by their names.
local function new_task(id, message, state, score, group, lock, lock_ttl, lock_rule, on_duplicate, on_conflict,
    process_at, payload)
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
  }
end
