-- Grants asks: each as often as all its enforced charges fit, up to the number wanted.
--
-- KEYS  the counters, each once: first those of plain asks, in their order, then those of asks of several charges, then
--       all others; and the states of penalties.
-- ARGV  number of groups of plain asks; for each group: number of its asks, units per grant, grants wanted, not after
--       (server time in µs), and its quota (states.lua); then, if there are any other asks, those of several charges,
--       packed as src/store/redis/several.rs does (empty if there are none), and all others (asks.lua). A plain ask is one
--       enforced charge, not held, on a counter that no other ask of the call charges; one of several charges has only
--       enforced ones, not held, each on a log or slots of its own, and no penalty.
-- Reply the server's time (µs), then for each ask, plain ones first: -1 if it came too late and nothing was done; for
--       an ask on logs and slots that was granted all it wanted as of now and has room for one more grant, the units in
--       each of its counters; else an array: grants, stamp (µs from the server's time), for each charge: times charged and
--       three numbers of its counter, and for each penalty: µs until its block ends. A counter's numbers are, of a log or
--       slots: units, µs until one more grant fits (0 now, -1 never), µs until nothing is left; of a sliding counter:
--       index, current, previous; of a fixed window: index, units, 0; of a bucket: time, debt, tick shift.

-- @include now.lua

-- Globals are looked up by name each time.
local KEYS, ARGV = KEYS, ARGV
local spread, pack, unpack, floor = unpack, struct.pack, struct.unpack, math.floor
local replies = { now }
local texts = {}
-- Plain asks that are not on a log, or on one that is not as usual: index of the key, and of the group.
local unusual = {}

-- Logs are answered and written in place: functions made for each call would cost a lone one more than they do. What
-- their text is stands in log.lua. One that is garbage or of another clock is unusual.
local at, k = 2, 0
for _ = 1, tonumber(ARGV[1]) do
  local cost, want, layout = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 4]
  local too_late = now > tonumber(ARGV[at + 3])
  local is_log = layout == '1' and cost > 0 and not too_late
  local limit, window, bytes, format, head, range, grain, grain_start, ends, one
  if is_log then
    limit, window = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
    -- @include log_window.lua
  end
  for _ = 1, tonumber(ARGV[at]) do
    k = k + 1
    if not is_log then
      if too_late then
        replies[k + 1] = -1
      else
        unusual[#unusual + 1] = { k, at }
      end
    else
      local text = redis.pcall('GET', KEYS[k])
      local usual, base, count, first, newest = true, now, 0, 0, nil
      -- @include log_found.lua
      if not usual then
        texts[k] = text
        unusual[#unusual + 1] = { k, at }
      else
        local live, granted = count - first, want
        if live + cost * want > limit then
          granted = live < limit and floor((limit - live) / cost) or 0
        end
        local used = live + granted * cost
        if granted > 0 then
          local kept
          -- @include log_kept.lua
          local added = granted * cost == 1 and one or string.rep(one, granted * cost)
          if kept then
            redis.call('SET', KEYS[k], kept .. added, 'PX', ttl_to(ends))
          else
            redis.call('APPEND', KEYS[k], added)
          end
        end
        if granted > 0 and granted == want and used + cost <= limit then
          replies[k + 1] = used
        else
          -- One more grant fits when so many have left.
          local to_leave, retry = used + cost - limit, 0
          if cost > limit then
            retry = -1
          elseif to_leave > live then
            retry = window
          elseif to_leave > 0 then
            -- Of garbage, even the last is not the latest.
            local from = 9 + (first + to_leave - 1) * bytes
            local time = base + (unpack(format, text, from) - unpack(format, text, 9)) % range
            retry = math.max(math.min(time, newest) + window - now, 1)
          end
          if granted > 0 then
            newest = now
          end
          replies[k + 1] = { granted, 0, granted, used, retry, newest and newest + window - now or 0 }
        end
      end
    end
  end
  at = at + (layout == '1' and 7 or 10)
end

-- What several.lua leaves over: asks as in asks.lua, with the index of the reply, and of each charge capacity and where
-- its kind of counter stands in ARGV in place of the terms.
local left_over
local answered = k + 1
local several = ARGV[at]
at = at + 1
if several and several ~= '' then
  -- @include several.lua
end
if #unusual == 0 and not left_over and not ARGV[at] then
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
  -- Written: what is stored in the end is others'.
  states[key] = nil
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
if not left_over and not ARGV[at] then
  return replies
end

-- @include asks.lua

local function acquire(ask)
  if now > ask.not_after then
    return -1
  end
  open(ask)
  local granted = grants(ask)
  if ask.penalties and granted < ask.want then
    count_denials(ask, granted)
  end
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

for _, ask in ipairs(left_over or {}) do
  for _, charge in ipairs(ask.charges) do
    charge.terms = terms_of(charge.slots > 0 and SLOTS or LOG, charge.capacity, charge.capacity, charge.window, charge.slots, 0)
  end
  replies[ask.reply] = acquire(ask)
end
while ARGV[at] do
  local ask
  ask, at = ask_at(at)
  answered = answered + 1
  replies[answered] = acquire(ask)
end

store_all()
return replies
