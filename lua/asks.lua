-- Asks: charges that stand or fall together.
--
-- In ARGV an ask is: want, hold (µs), not after (server time in µs), number of charges, and for each charge: its
-- index in KEYS, cost, mode (1 enforced, 0 shadow, 2 enforced and with a penalty), its quota (states.lua), and its penalty
-- (penalty.lua). A charge that is written down for its penalty alone has the index 0 and no quota.
-- src/store/redis/call.rs writes them.

-- @include penalty.lua

local penalties

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
  for _ = 1, count do
    local mode = ARGV[at + 2]
    local charge = {
      k = tonumber(ARGV[at]),
      cost = tonumber(ARGV[at + 1]),
      enforced = mode ~= '0',
    }
    if charge.k > 0 then
      charge.terms, at = terms_at(at + 3)
      ask.charges[#ask.charges + 1] = charge
    else
      at = at + 3
    end
    if mode == '2' then
      penalties = penalties or make_penalties()
      ask.penalties = ask.penalties or {}
      local penalty
      penalty, at = penalties.at(at)
      penalty.charge = charge
      ask.penalties[#ask.penalties + 1] = penalty
    end
  end
  return ask, at
end

-- Reads the states of an ask's penalties. Those of one state count once, under the first.
local function open_penalties(ask)
  local firsts = {}
  for _, penalty in ipairs(ask.penalties) do
    local first = firsts[penalty.k]
    if not first then
      first, firsts[penalty.k] = penalty, penalty
      first.s = penalties.state_of(first)
    end
    penalty.first, penalty.s = first, first.s
    ask.blocked = ask.blocked or first.s.ends > now
  end
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
  if ask.penalties then
    open_penalties(ask)
  end
end

-- How often the ask fits.
local function grants(ask)
  if ask.blocked then
    return 0
  end
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

-- Counts the denials of an ask that was granted so often, for the penalties of charges that had no room for more.
local function count_denials(ask, granted)
  for _, penalty in ipairs(ask.penalties) do
    local counter = penalty.charge.counter
    if counter then
      local free = counter.s.layout.free(counter.s, counter.terms)
      if fits(free, counter.terms, counter.enforced, ask.want) <= granted then
        penalty.first.violated = true
      end
    end
  end
  for _, penalty in ipairs(ask.penalties) do
    if penalty.violated then
      penalties.count(penalty.s, penalty, ask.want - granted)
    end
  end
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

-- Charges what was added up, and returns the answer: grants, stamp (µs from now), for each charge how often it was charged
-- and its counter's report, and for each penalty the time until its block ends (µs).
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
  if ask.penalties then
    for _, penalty in ipairs(ask.penalties) do
      answer[#answer + 1] = math.max(penalty.s.ends - now, 0)
    end
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
  if penalties then
    penalties.store_all()
  end
  for _, s in pairs(states) do
    store(s)
  end
end
