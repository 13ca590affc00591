-- Return the tests that tasks must pass, from the kinds and values in a script's arguments. A kind begins
-- with `&` for a new group of alternatives, or with `|` for a further alternative. The next letter says where
-- the text is searched. A test of a number has a range as its value: `n` is followed by the number of a
-- field, `j` by the name of a JSON value.
local function take_texts(kinds, values)
  local texts = {}
  for i, kind in ipairs(kinds) do
    local sign = kind:sub(1, 1)
    if sign == '&' or sign == '|' then
      local one = { begins = sign == '&', source = kind:sub(2, 2), name = kind:sub(3), text = values[i] }
      if one.source == 'n' or one.source == 'j' then
        local low, high, text = one.text:match('^(%S*) (%S*) ?(.*)$')
        one.has_range = one.source == 'n' or low ~= '' or high ~= ''
        one.low, one.high, one.text = tonumber(low) or -math.huge, tonumber(high) or math.huge, text
        one.field, one.key = tonumber(one.name), '"' .. one.name .. '"'
      end
      texts[#texts + 1] = one
    end
  end
  return texts
end
