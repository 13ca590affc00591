-- Read message, state, group, lock and callback of the tasks among the arguments from `first` on into
-- `places.fields`, by id, for `find_pending`, `find_callbacks` and `take_out`.
local function read_places(places, first)
  local call, fields = redis.call, {}
  for at = first, #ARGV do
    local id = ARGV[at]
    fields[id] = fields[id]
      or call('HMGET', places.task_prefix .. id, 'msg', 'state', 'group', 'unique_key', 'x:finished')
  end
  places.fields = fields
end
