-- Lines of states.lua and block.lua.

-- What KEYS[k] holds, false if nothing, or a table if it is of the wrong type. `found` is what GET told, if that was asked
-- before. Any other error ends the call: who may not read would find that nothing was charged, ever.
local function value_of(k, found)
  if found == nil then
    found = redis.pcall('GET', KEYS[k])
  end
  if type(found) == 'table' and string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    -- Read again, it is raised as the server tells it.
    redis.call('GET', KEYS[k])
  end
  return found
end
