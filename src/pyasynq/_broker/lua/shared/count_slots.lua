-- Return how many entries the living workers of a list take at once, and how many they hold. A worker lives as long as
-- its heartbeat key; the dead ones are returned too. Workers write these keys themselves, so any may have another type.
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
