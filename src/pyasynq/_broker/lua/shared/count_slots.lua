-- Count the workers of a list. Return the number of live workers, how many entries they take at once, how
-- many they hold, and the names of the dead ones. A worker is live while its heartbeat key exists. Workers
-- write these keys themselves, so each key may have another type.
local function count_slots(workers, alive_prefix, held_prefix)
  local living, slots, held, dead = 0, 0, 0, {}
  for _, worker in ipairs(redis.call('SRANDMEMBER', workers, 1000)) do
    local size = redis.pcall('GET', alive_prefix .. worker)
    if type(size) == 'string' then
      local length = redis.pcall('LLEN', held_prefix .. worker)
      living = living + 1
      slots = slots + math.min(100, tonumber(size:match('^%d+$')) or 1)
      held = held + (type(length) == 'number' and length or 0)
    else
      dead[#dead + 1] = worker
    end
  end
  return living, slots, held, dead
end
