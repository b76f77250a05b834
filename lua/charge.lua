-- Charges an ask once, whether it fits or not.
--
-- KEYS  the counters, each once.
-- ARGV  the ask, as in asks.lua.
-- Reply as for one ask in acquire.lua: the server's time (µs), then -1 or an array.

-- @include now.lua
local texts = {}
-- @include states.lua
-- @include asks.lua

local ask = ask_at(1)
if now > ask.not_after then
  return { now, -1 }
end
open(ask)
add_up(ask, 1)
local charged = {}
for each in ipairs(ask.charges) do
  charged[each] = 1
end
local answer = conclude(ask, 1, stamp_of(ask), charged)
store_all()
return { now, answer }
