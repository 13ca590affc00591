-- Add the counts of ended attempts to the records of the present minute, ten minutes and day.
-- KEYS[1] minutes: hash of packed records by task type
-- KEYS[2] ten_minutes: the same, with histograms
-- KEYS[3] days: the same, with histograms
-- ARGV[1] max_types: largest number of task types in a hash; all further types are counted in the field other_types
-- ARGV[2] other_types: field that counts all further types
-- ARGV[3] summary_size: number of counts in a vector before its histograms; minutes keep only these
-- ARGV[4] vector_size: number of counts in a vector
-- ARGV[5] minute: number of the present minute's slot within its hash
-- ARGV[6] minutes_lifetime: seconds that the hash is kept
-- ARGV[7] ten_minute: number of the present slot within its hash
-- ARGV[8] ten_minutes_lifetime: seconds that the hash is kept
-- ARGV[9] day: number of the present slot within its hash
-- ARGV[10] days_lifetime: seconds that the hash is kept
-- ARGV[11...] type, numbers: for each task type, its name and its packed vector
-- Returns: number of task types that were counted
-- Uses: add_record

local minutes, ten_minutes, days = unpack(KEYS)
local max_types, other_types, summary_size, vector_size, minute, minutes_lifetime, ten_minute,
  ten_minutes_lifetime, day, days_lifetime = unpack(ARGV, 1, 10)
summary_size, vector_size = tonumber(summary_size), tonumber(vector_size)

local levels = {
  { key = minutes, slot = tonumber(minute), size = summary_size, lifetime = minutes_lifetime },
  { key = ten_minutes, slot = tonumber(ten_minute), size = vector_size, lifetime = ten_minutes_lifetime },
  { key = days, slot = tonumber(day), size = vector_size, lifetime = days_lifetime },
}
-- A key of a wrong type fails here, before anything is written.
for _, level in ipairs(levels) do
  level.room = max_types - redis.call('HLEN', level.key)
end
local counted = 0
for at = 11, #ARGV, 2 do
  local task_type, numbers = ARGV[at], ARGV[at + 1]
  for _, level in ipairs(levels) do
    local field = task_type
    local value = redis.call('HGET', level.key, field)
    if not value and level.room <= 0 then
      field = other_types
      value = redis.call('HGET', level.key, field)
    elseif not value then
      level.room = level.room - 1
    end
    redis.call('HSET', level.key, field, add_record(value, level, numbers, summary_size, vector_size))
  end
  counted = counted + 1
end
for _, level in ipairs(levels) do
  redis.call('EXPIRE', level.key, level.lifetime)
end
return counted
