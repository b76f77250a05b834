-- Corrects what was charged: each correction by itself. Counters that several share are read once and written once.
--
-- KEYS  the counters, each once.
-- ARGV  number of corrections; for each: what (0 takes grants back, exactly the units that were charged as of their
--       stamp, or nothing; 1 charges the ask once, whether it fits or not), stamp (µs), the ask, as in asks.lua,
--       wanted as often as it is taken back.
-- Reply the server's time (µs), then for each correction: -1 if it came too late and nothing was done; 0 if it took
--       back; else an array, as for one ask in acquire.lua.

-- @include now.lua
-- @include ttl_to.lua
local texts = {}
-- @include states.lua
-- @include asks.lua

local function give_back(ask, stamp)
  add_up(ask, ask.want)
  for _, counter in ipairs(ask.counters) do
    if counter.units > 0 then
      counter.s.layout.give_back(counter.s, counter.terms, stamp, counter.units)
      counter.s.written_under = counter.terms
    end
  end
  return 0
end

local function charge(ask)
  add_up(ask, 1)
  local charged = {}
  for each in ipairs(ask.charges) do
    charged[each] = 1
  end
  return conclude(ask, 1, stamp_of(ask), charged)
end

local replies = { now }
local at = 2
for each = 1, tonumber(ARGV[1]) do
  local what, stamp = ARGV[at], tonumber(ARGV[at + 1])
  local ask
  ask, at = ask_at(at + 2)
  if now > ask.not_after then
    replies[each + 1] = -1
  else
    open(ask)
    replies[each + 1] = what == '0' and give_back(ask, stamp) or charge(ask)
  end
end
store_all()
return replies
