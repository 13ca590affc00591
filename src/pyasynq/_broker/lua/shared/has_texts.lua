-- Return whether a task may pass the tests of `take_texts`: at least one of each group. Its result is read
-- only if a test searches it. Numbers that a script cannot read pass.
-- Uses: number_in_message, may_hold_json
local function has_texts(texts, task, id, message)
  local is_found, result = true, nil
  for _, one in ipairs(texts) do
    if one.begins and not is_found then
      return false
    end
    if one.begins or not is_found then
      if one.source == 'n' then
        local number = number_in_message(message, one.field)
        is_found = not number or number >= one.low and number <= one.high
      elseif one.source == 'j' then
        is_found = may_hold_json(message, one)
      elseif one.source == 'r' then
        result = result or redis.call('HGET', task, 'result') or ''
        is_found = result:find(one.text, 1, true) ~= nil
      else
        is_found = message:find(one.text, 1, true) ~= nil
        if one.source == 'i' then
          is_found = is_found or id:find(one.text, 1, true) ~= nil
        end
      end
    end
  end
  return is_found
end
