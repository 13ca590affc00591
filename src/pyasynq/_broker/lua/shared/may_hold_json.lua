-- Return whether the JSON in a message may have a value with this name that is in a range or equals a text.
-- Return true also for a value that is a list, and for a message with escapes: these may encode the name or
-- the text.
local function may_hold_json(message, test)
  if message:find('\\', 1, true) then
    return true
  end
  local _, last = message:find(test.key, 1, true)
  while last do
    local first, token = message:match('^%s*:%s*(.)([%w.+-]*)', last + 1)
    if first == '[' then
      return true
    elseif first == '"' then
      local text = message:match('^%s*:%s*"([^"]*)"', last + 1)
      if text == test.text then
        return true
      end
    elseif first then
      token = first .. token
      local number = test.has_range and tonumber(token)
      if token == test.text or number and number >= test.low and number <= test.high then
        return true
      end
    end
    _, last = message:find(test.key, last + 1, true)
  end
  return false
end
