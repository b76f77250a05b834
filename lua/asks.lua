-- Asks: charges that stand or fall together.
--
-- In ARGV an ask is: want, hold (µs), not after (server time in µs), number of charges, and for each charge: its
-- index in KEYS, cost, mode (1 enforced, 0 shadow), and its quota (states.lua).
-- src/store/redis/call.rs writes them.

-- The ask at `at`, and where the next one is.
local function ask_at(at)
  local ask = {
    want = tonumber(ARGV[at]),
    hold = tonumber(ARGV[at + 1]),
    not_after = tonumber(ARGV[at + 2]),
    charges = {},
  }
  local count = tonumber(ARGV[at + 3])
  at = at + 4
  for each = 1, count do
    local charge = {
      k = tonumber(ARGV[at]),
      cost = tonumber(ARGV[at + 1]),
      enforced = ARGV[at + 2] == '1',
    }
    charge.terms, at = terms_at(at + 3)
    ask.charges[each] = charge
  end
  return ask, at
end

-- Reads the counters of an ask. Charges on one counter add up, under the terms of the first.
local function open(ask)
  local by_key = {}
  ask.counters = {}
  for _, charge in ipairs(ask.charges) do
    local counter = by_key[charge.k]
    if not counter then
      counter = { terms = charge.terms, s = state_of(charge.k, charge.terms), enforced = 0, units = 0 }
      by_key[charge.k] = counter
      ask.counters[#ask.counters + 1] = counter
    end
    charge.counter = counter
    if charge.enforced then
      counter.enforced = counter.enforced + charge.cost
    end
  end
end

-- How often the ask fits.
local function grants(ask)
  local granted = ask.want
  for _, charge in ipairs(ask.charges) do
    local counter = charge.counter
    if charge.enforced then
      local free = counter.s.layout.free(counter.s, counter.terms)
      granted = math.min(granted, fits(free, counter.terms, counter.enforced, ask.want))
    end
  end
  return granted
end

-- The time that stamps an ask's charges: not before any entry of its counters, and no further ahead than all take.
local function stamp_of(ask)
  local stamp = now + math.min(ask.hold, 1000000)
  for _, counter in ipairs(ask.counters) do
    stamp = math.min(stamp, counter.s.layout.latest(counter.s, counter.terms))
  end
  for _, counter in ipairs(ask.counters) do
    stamp = math.max(stamp, counter.s.layout.tail(counter.s, counter.terms))
  end
  return stamp
end

-- Charges what was added up, and returns the answer: grants, stamp (µs from now), and for each charge how often it
-- was charged and its counter's report.
local function conclude(ask, granted, stamp, charged)
  for _, counter in ipairs(ask.counters) do
    if counter.units > 0 then
      apply(counter.s, counter.terms, stamp, counter.units)
    end
  end
  local answer = { granted, stamp - now }
  for each, charge in ipairs(ask.charges) do
    local counter = charge.counter
    local cost = charge.enforced and counter.enforced or charge.cost
    local a, b, c = report(counter.s, counter.terms, cost)
    local size = #answer
    answer[size + 1], answer[size + 2], answer[size + 3], answer[size + 4] = charged[each], a, b, c
  end
  return answer
end

-- Adds up what all charges, shadows too, take in so many grants: those on one counter change together or not at all.
local function add_up(ask, times)
  for _, charge in ipairs(ask.charges) do
    charge.counter.units = charge.counter.units + charge.cost * times
  end
end

local function store_all()
  for _, s in pairs(states) do
    store(s)
  end
end
