-- Takes back grants of an ask: exactly the units that were charged as of their stamp, or nothing.
--
-- KEYS  the counters, each once.
-- ARGV  number of grants, stamp (µs), the ask, as in asks.lua.
-- Reply the server's time (µs), then -1 if it came too late and nothing was done, else 0.

-- @include now.lua
local texts = {}
-- @include states.lua
-- @include asks.lua

local times, stamp = tonumber(ARGV[1]), tonumber(ARGV[2])
local ask = ask_at(3)
if now > ask.not_after then
  return { now, -1 }
end
open(ask)
add_up(ask, times)
for _, counter in ipairs(ask.counters) do
  if counter.units > 0 then
    counter.s.layout.give_back(counter.s, counter.terms, stamp, counter.units)
    counter.s.written_under = counter.terms
  end
end
store_all()
return { now, 0 }
