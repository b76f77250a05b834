-- The counters, as src/algorithm has them: integers only, every intermediate below 2^53.
--
-- A counter is one string of packed big-endian integers, read by one GET, or with others by one MGET, and written by one
-- command, which carries its TTL where that has to change. The first byte tells the layout; what has another one, or is no string, is
-- garbage and counts as nothing. How each is packed stands in its file.
--
-- TTLs: a counter lives until its last unit has left, and at most max(1 s, W/8) longer. Time is cut into grains a
-- little shorter than that. The first charge in a grain sets the TTL anew, so that one that was lost returns.

local MOST_UNITS = 2 ^ 32 + 1
local MOST_IN_LOG = 4097
local PRODUCT_BOUND = 2 ^ 52

local LOG, SLOTS, COUNTER, FIXED, BUCKET = 1, 2, 3, 4, 5

-- Exact as long as a + b is below 2^53.
local function quotient(a, b)
  return math.floor(a / b)
end

local function quotient_up(a, b)
  return math.floor((a + b - 1) / b)
end

-- `time` in ticks of `tick` µs, rounded up.
local function ticks(time, tick)
  return quotient(time + tick - 1, tick)
end

-- The length of the ticks that keep units times window exact.
local function tick_of(units, window)
  local tick = 1
  while units * ticks(window, tick) >= PRODUCT_BOUND do
    tick = tick * 2
  end
  return tick
end

local function terms_of(layout, capacity, rate, window, extra, shift)
  local terms = {
    layout = layout,
    capacity = capacity,
    rate = rate,
    window = window,
    extra = extra,
    tick = 2 ^ shift,
  }
  terms.slack = math.min(window, 1000000)
  terms.grain = math.max(1000000, quotient(window, 8)) - 20000
  if terms.layout == LOG then
    -- Bytes of a distance that can be four times the window and the slack: live units and what stays before them.
    terms.bytes = window <= 1000000000 and 4 or window <= 250000000000 and 5 or 6
    terms.format = '>I' .. terms.bytes
    terms.range = 256 ^ terms.bytes
  elseif terms.layout == SLOTS then
    terms.width = quotient_up(window, terms.extra)
  end
  return terms
end

-- The terms of the quota at `at`, and where what follows it is. A quota is: layout (1 log, 2 slots, 3 sliding counter, 4
-- fixed window, 5 bucket), capacity, window (µs); and unless it is a log, units per window, slots or offset (µs), tick
-- shift.
local function terms_at(at)
  local layout, capacity, window = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  if layout == LOG then
    return terms_of(layout, capacity, capacity, window, 0, 0), at + 3
  end
  local rate, extra, shift = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  return terms_of(layout, capacity, rate, window, extra, shift), at + 6
end

local function is_foreign(terms, time)
  return time > now + terms.slack
end

-- Whether sorted times, such as live units have, are of another clock. The oldest tells: live ones were charged
-- within a window and the slack of each other. Where they were not, they are garbage, and treated alike.
local function are_foreign(terms, oldest, newest)
  return is_foreign(terms, oldest) or newest < oldest or newest > oldest + terms.window + terms.slack
end

-- What of a sorted string of records is expired: the number of leading records for which `expired` holds. Ordinary
-- traffic expires one or two at a time, a backlog is searched.
local function count_leading(from, count, expired)
  local step, low = 1, from
  while low + step <= count and expired(low + step - 1) do
    low = low + step
    step = step * 2
  end
  local high = math.min(low + step - 1, count)
  while low < high do
    local middle = quotient(low + high, 2)
    if expired(middle) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Each layout has load, repair, free, empty_at, tail, latest, charge and give_back, which are src/algorithm's, where
-- the reasons stand; is_empty and text, what is to be written; ttl, whether the TTL is still right, and when it
-- should end; and either report, the numbers from which the caller works out the rest, or earliest_later.
local make = {}
local layouts = {}

-- The TTL of a layout that keeps it in its text. With `spare`, the end moves on less often.
local function ttl_in_text(s, terms, last, spare)
  local expires = (s.expires or 0) * 1000
  local right = s.grain == quotient(now, terms.grain) and last <= expires and expires <= last + terms.grain
  return right, last + spare
end

-- @include log.lua
-- @include slots.lua
-- @include counter.lua
-- @include fixed.lua
-- @include bucket.lua

-- The functions of a layout, made when it is first met: most calls meet one.
local function layout_of(terms)
  local layout = layouts[terms.layout]
  if not layout then
    layout = make[terms.layout]()
    layouts[terms.layout] = layout
  end
  return layout
end

-- @include value.lua

local states = {}

-- The counter of KEYS[k] under `terms`, repaired. Read once per call, or before, into `texts`.
local function state_of(k, terms)
  local s = states[k]
  if s then
    return s
  end
  local text = value_of(k, texts[k])
  s = { k = k, terms = terms, layout = layout_of(terms) }
  if type(text) ~= 'string' then
    s.garbage = text and true
    text = nil
  end
  s.layout.load(s, text)
  s.found = text and true
  s.layout.repair(s)
  states[k] = s
  return s
end

local function apply(s, terms, stamp, units)
  local latest = math.max(s.layout.tail(s, terms), s.layout.latest(s, terms))
  s.layout.charge(s, terms, math.min(stamp, latest), math.min(units, 2 * MOST_UNITS))
  s.charged, s.written_under = true, terms
end

-- The first time from now on at which `cost` units fit, as µs from now; -1 if never.
local function retry_after(s, terms, cost)
  if terms.capacity == 0 or cost > terms.capacity then
    return -1
  elseif cost == 0 or cost <= s.layout.free(s, terms) then
    return 0
  end
  return math.max(s.layout.earliest_later(s, terms, cost) - now, 1)
end

-- Three numbers that tell the state, as src/store/redis/reply.rs reads them.
local function report(s, terms, cost)
  if s.layout.report then
    return s.layout.report(s)
  end
  return s.layout.total(s), retry_after(s, terms, cost), math.max(s.layout.empty_at(s, terms) - now, 0)
end

-- How often `cost` fits into `free` units, up to `want`.
local function fits(free, terms, cost, want)
  if cost == 0 then
    return terms.capacity > 0 and want or 0
  end
  return math.min(quotient(free, cost), want)
end

-- Writes what has changed: one command, which carries the TTL where it has to change.
local function store(s)
  if not s.charged and not s.changed and not s.repaired then
    return
  end
  local terms, layout = s.written_under or s.terms, s.layout
  if layout.is_empty(s) then
    if s.found or s.garbage then
      redis.call('DEL', KEYS[s.k])
    end
    return
  end
  local keeps_ttl, expiry = layout.ttl(s, terms)
  keeps_ttl = keeps_ttl and s.found and not s.changed and not s.repaired
  local appended = keeps_ttl and layout.appended and layout.appended(s)
  local at, overwritten
  if keeps_ttl and layout.overwritten then
    at, overwritten = layout.overwritten(s)
  end
  if appended then
    redis.call('APPEND', KEYS[s.k], appended)
  elseif overwritten then
    redis.call('SETRANGE', KEYS[s.k], at, overwritten)
  elseif keeps_ttl then
    redis.call('SET', KEYS[s.k], layout.text(s), 'KEEPTTL')
  else
    s.expires, s.grain = quotient_up(expiry, 1000), quotient(now, terms.grain)
    if s.charged or s.changed then
      redis.call('SET', KEYS[s.k], layout.text(s), 'PX', ttl_to(expiry))
    else
      -- A denial that has something to repair stays one where nothing may be written: no memory, or a replica.
      redis.pcall('SET', KEYS[s.k], layout.text(s), 'PX', ttl_to(expiry))
    end
  end
end
