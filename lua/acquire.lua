-- Grants asks: each as often as all its enforced charges fit, up to the number wanted.
--
-- KEYS  the counters, each once: first those of plain asks, in their order, then those of asks of several charges, then
--       all others; and the states of penalties.
-- ARGV  the plain asks, packed as src/store/redis/plain.rs does (empty if there are none): for each group of them its number
--       of asks, layout, units per grant, grants wanted, not after (server time in µs), and the rest of its quota. Then, if
--       there are any other asks, those of several charges, packed as src/store/redis/several.rs does (empty if there are
--       none), and all others (asks.lua). A plain ask is one enforced charge, not held, on a counter that no other ask of
--       the call charges; one of several charges has only enforced ones, each on a log or slots of its own, no penalty,
--       and is not held, unless its only one is on slots.
-- Reply the server's time (µs), then for each ask, plain ones first: -1 if it came too late and nothing was done; for
--       an ask on logs and slots that was granted all it wanted as of now, or of where its hold ends, and has room for one
--       more grant, the units in each of its counters; else an array: grants, stamp (µs from the server's time), for each
--       charge: times charged and three numbers of its counter, and for each penalty: µs until its block ends. A counter's
--       numbers are, of a log or slots: units, µs until one more grant fits (0 now, -1 never), µs until nothing is left; of
--       a sliding counter: index, current, previous; of a fixed window: index, units, 0; of a bucket: time, debt, tick
--       shift. Where no ask is answered by more than units, all of it is one text: the time in 7 bytes, units in 5 each.

-- @include now.lua

-- Globals are looked up by name each time.
local KEYS, ARGV = KEYS, ARGV
local spread, pack, unpack, floor = unpack, struct.pack, struct.unpack, math.floor
local replies = { now }
-- Plain asks that are not on a log, or on one that is not as usual: index of the key, and where the group's terms are. And
-- what was found there. Tables are made where they are needed: a lone ask needs none, and takes less time than they do.
local unusual, texts
-- Whether a reply is more than a count.
local at_length

-- Logs are answered and written in place: functions made for each call would cost a lone one more than they do. What
-- their text is stands in log.lua. One that is garbage or of another clock is unusual.
local plain, at, k = ARGV[1], 1, 0
while at <= #plain do
  local asks, layout, cost, want, not_after, limit, window = unpack('>HBI5I4I7I5I7', plain, at)
  if now > not_after then
    at_length = true
    for each = k + 1, k + asks do
      replies[each + 1] = -1
    end
  elseif layout ~= 1 or cost == 0 then
    unusual = unusual or {}
    for each = k + 1, k + asks do
      unusual[#unusual + 1] = { each, at }
    end
  else
    local bytes, format, range, cutoff, grain, grain_start, ends, one
    -- @include log_window.lua
    local wanted, ttl = cost * want, nil
    -- How long a log is at most that takes in all that is wanted, and has room for one more grant.
    local most = want > 0 and (limit - wanted - cost) * bytes or 0
    local all
    -- Several in one go, as each call of a command costs more than what it reads. One of the wrong type reads as none.
    local found = asks > 1 and redis.call('MGET', spread(KEYS, k + 1, k + asks))
    for each = k + 1, k + asks do
      local text
      if found then
        text = found[each - k]
      else
        text = redis.pcall('GET', KEYS[each])
      end
      local size, is_ordinary = 0, false
      -- @include log_ordinary.lua
      if is_ordinary and size <= most then
        all = all or wanted == 1 and one or string.rep(one, wanted)
        redis.call('APPEND', KEYS[each], all)
        local units = size / bytes + wanted
        -- A lone ask, as most are, is answered without a look at what else there may be.
        if #KEYS == 1 then
          return pack('>I7I5', now, units)
        end
        replies[each + 1] = units
      else
        local usual, base, count, first, newest = true, now, 0, 0, nil
        -- @include log_found.lua
        if not usual then
          texts, unusual = texts or {}, unusual or {}
          texts[each] = text
          unusual[#unusual + 1] = { each, at }
        else
          local live, granted = count - first, want
          if live + wanted > limit then
            granted = live < limit and floor((limit - live) / cost) or 0
          end
          local used = live + granted * cost
          if granted > 0 then
            local kept
            -- @include log_kept.lua
            local added = granted * cost == 1 and one or string.rep(one, granted * cost)
            if kept then
              if not ttl then
                -- @include ttl.lua
              end
              redis.call('SET', KEYS[each], kept .. added, 'PX', ttl)
            else
              redis.call('APPEND', KEYS[each], added)
            end
          end
          if granted > 0 and granted == want and used + cost <= limit then
            replies[each + 1] = used
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
              local time = base + (unpack(format, text, from) - base) % range
              retry = math.max(math.min(time, newest) + window - now, 1)
            end
            if granted > 0 then
              newest = now
            end
            at_length = true
            replies[each + 1] = { granted, 0, granted, used, retry, newest and newest + window - now or 0 }
          end
        end
      end
    end
  end
  k, at = k + asks, at + 44
end
-- @include ttl_to.lua

-- What several.lua leaves over: asks as in asks.lua, with the index of the reply, and of each charge capacity, slots and
-- window in place of the terms.
local left_over
local answered = k + 1
local several = ARGV[2]
if several and several ~= '' then
  -- @include several.lua
end
if not unusual and not left_over and not ARGV[3] then
  if at_length then
    return replies
  end
  return pack('>I7' .. string.rep('I5', answered - 1), spread(replies))
end

texts = texts or {}
-- @include states.lua

-- The terms of the plain asks at `group`, their cost, and how often each is wanted.
local function terms_packed(group)
  local _, layout, cost, want, _, capacity, window, rate, extra, shift = unpack('>HBI5I4I7I5I7I5I7B', plain, group)
  return terms_of(layout, capacity, rate, window, extra, shift), cost, want
end

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

local group, terms, cost, want
for _, ask in ipairs(unusual or {}) do
  if group ~= ask[2] then
    group = ask[2]
    terms, cost, want = terms_packed(group)
  end
  replies[ask[1] + 1] = acquire_plain(ask[1], terms, cost, want)
end
if not left_over and not ARGV[3] then
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
at = 3
while ARGV[at] do
  local ask
  ask, at = ask_at(at)
  answered = answered + 1
  replies[answered] = acquire(ask)
end

store_all()
return replies
