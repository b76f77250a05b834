-- Grants asks: each as often as all its enforced charges fit, up to the number wanted.
--
-- KEYS  the counters, each once: first those of plain asks, in their order, then all others.
-- ARGV  number of groups of plain asks; for each group: number of its asks, units per grant, grants wanted, not after
--       (server time in µs), and the six numbers of its quota (states.lua); then the number of other asks, and these
--       (asks.lua). A plain ask is one enforced charge, not held, on a counter that no other ask of the call charges.
-- Reply the server's time (µs), then for each ask, plain ones first: -1 if it came too late and nothing was done; for
--       a plain ask on a log that was granted all it wanted as of now and has room for one more grant, the units in
--       the log; else an array: grants, stamp (µs from the server's time), and for each charge: times charged and
--       three numbers of its counter. These are, of a log or slots: units, µs until one more grant fits (0 now, -1
--       never), µs until nothing is left; of a sliding counter: index, current, previous; of a fixed window: index,
--       units, 0; of a bucket: time, debt, tick shift.

-- @include now.lua

local GROUP = 10

local replies = { now }
local texts = {}
-- Plain asks that are not on a log, or on one that is not as usual: index of the key, and of the group.
local unusual = {}

-- Answers a plain ask on the log whose text is given, and writes the log. False if it is not as usual: garbage, of
-- another clock, or too old for its distances. log.lua says what the text is.
local function acquire_log(k, text, log)
  local cost, limit, window = log.cost, log.limit, log.window
  local bytes, format = log.bytes, log.format
  local base, count, first, oldest, newest = now, 0, 0, nil, nil
  if text then
    if type(text) ~= 'string' or #text < 8 + bytes or (#text - 8) % bytes ~= 0 then
      return false
    end
    local tag
    tag, base, oldest = struct.unpack(log.head, text)
    count = (#text - 8) / bytes
    oldest, newest = base + oldest, base + struct.unpack(format, text, #text - bytes + 1)
    if tag ~= 76 or newest > now or newest < oldest or now - base >= log.range then
      return false
    end
    if newest + window <= now then
      text, base, count = false, now, 0
    elseif oldest + window <= now then
      -- Those that have left the window: one or two in ordinary traffic, searched for where they are many.
      local cutoff, step, high = now - window - base, 1, count - 1
      while first + step <= high and struct.unpack(format, text, 9 + (first + step - 1) * bytes) <= cutoff do
        first, step = first + step, step * 2
      end
      high = math.min(first + step - 1, high)
      while first < high do
        local middle = math.floor((first + high) / 2)
        if struct.unpack(format, text, 9 + middle * bytes) <= cutoff then
          first = middle + 1
        else
          high = middle
        end
      end
      oldest = base + struct.unpack(format, text, 9 + first * bytes)
    end
    if count > 0 and newest > oldest + window + log.slack then
      return false
    end
  end

  local live = count - first
  local granted = math.min(log.want, math.floor(math.max(limit - live, 0) / cost))
  local used = live + granted * cost
  if granted > 0 then
    local added = struct.pack(format, now - base)
    if granted * cost > 1 then
      added = string.rep(added, granted * cost)
    end
    if not text then
      redis.call('SET', KEYS[k], log.empty .. added, 'PX', log.ttl)
    elseif first * 4 < count and math.floor(newest / log.grain) == log.now_grain then
      redis.call('APPEND', KEYS[k], added)
    else
      local kept = first > 0 and string.sub(text, 1, 8) .. string.sub(text, 9 + first * bytes) or text
      redis.call('SET', KEYS[k], kept .. added, 'PX', log.ttl)
    end
    newest = now
    if granted == log.want and used + cost <= limit then
      replies[k + 1] = used
      return true
    end
  end

  -- One more grant fits when so many have left.
  local to_leave, retry = used + cost - limit, 0
  if cost > limit then
    retry = -1
  elseif to_leave > live then
    retry = window
  elseif to_leave > 0 then
    retry = base + struct.unpack(format, text, 9 + (first + to_leave - 1) * bytes) + window - now
  end
  replies[k + 1] = { granted, 0, granted, used, retry, newest and newest + window - now or 0 }
  return true
end

local at, k = 2, 0
for _ = 1, tonumber(ARGV[1]) do
  local count, cost, layout = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 4])
  local too_late = now > tonumber(ARGV[at + 3])
  local log
  if layout == 1 and cost > 0 and not too_late then
    local window = tonumber(ARGV[at + 7])
    local bytes = window <= 1000000000 and 4 or window <= 250000000000 and 5 or 6
    log = {
      cost = cost,
      want = tonumber(ARGV[at + 2]),
      limit = tonumber(ARGV[at + 5]),
      window = window,
      slack = math.min(window, 1000000),
      bytes = bytes,
      format = '>I' .. bytes,
      head = '>BI7I' .. bytes,
      range = 256 ^ bytes,
      grain = math.max(1000000, math.floor(window / 8)) - 20000,
      empty = struct.pack('>BI7', 76, now),
    }
    log.now_grain = math.floor(now / log.grain)
    log.ttl = ttl_to((log.now_grain + 1) * log.grain + window)
  end
  for _ = 1, count do
    k = k + 1
    if too_late then
      replies[k + 1] = -1
    else
      local done = false
      if log then
        local text = redis.pcall('GET', KEYS[k])
        texts[k] = text
        done = acquire_log(k, text, log)
      end
      if not done then
        unusual[#unusual + 1] = { k, at }
      end
    end
  end
  at = at + GROUP
end

local others = tonumber(ARGV[at])
if #unusual == 0 and others == 0 then
  return replies
end

-- @include states.lua

local function acquire_plain(key, terms, cost, want)
  local s = state_of(key, terms)
  local layout = s.layout
  local granted = fits(layout.free(s, terms), terms, cost, want)
  local stamp = math.max(now, layout.tail(s, terms))
  if granted > 0 and cost > 0 then
    apply(s, terms, stamp, cost * granted)
  end
  local a, b, c = report(s, terms, cost)
  store(s)
  return { granted, stamp - now, granted, a, b, c }
end

local group, terms
for _, ask in ipairs(unusual) do
  if group ~= ask[2] then
    group = ask[2]
    terms = terms_at(group + 4)
  end
  replies[ask[1] + 1] = acquire_plain(ask[1], terms, tonumber(ARGV[group + 1]), tonumber(ARGV[group + 2]))
end
if others == 0 then
  return replies
end

-- @include asks.lua

local function acquire(ask)
  if now > ask.not_after then
    return -1
  end
  open(ask)
  local granted = grants(ask)
  for _, counter in ipairs(ask.counters) do
    counter.units = counter.enforced * granted
  end
  local charged = {}
  for each, charge in ipairs(ask.charges) do
    local counter = charge.counter
    if charge.enforced then
      charged[each] = granted
    else
      local free = counter.s.layout.free(counter.s, counter.terms) - counter.units
      charged[each] = fits(math.max(free, 0), counter.terms, charge.cost, granted)
      counter.units = counter.units + charge.cost * charged[each]
    end
  end
  return conclude(ask, granted, stamp_of(ask), charged)
end

local ask
at = at + 1
for each = 1, others do
  ask, at = ask_at(at)
  replies[k + 1 + each] = acquire(ask)
end

store_all()
return replies
