-- What acquire.lua would answer, if nothing were charged. What another clock wrote is repaired, nothing else changes.
--
-- KEYS  the counters and the states of penalties, each once.
-- ARGV  the ask, as in asks.lua.
-- Reply as for one ask in acquire.lua: the server's time (µs), then -1 or an array.

-- @include now.lua
-- @include ttl_to.lua
local texts = {}
-- @include states.lua
-- @include asks.lua

local ask = ask_at(1)
if now > ask.not_after then
  return { now, -1 }
end
open(ask)
local charged = {}
for each in ipairs(ask.charges) do
  charged[each] = 0
end
local answer = conclude(ask, grants(ask), now, charged)
store_all()
return { now, answer }
