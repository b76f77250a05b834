-- Lines of acquire.lua: asks of charges that are all enforced, each on a log or slots of its own, answered without the
-- functions of states.lua; one that is held has one charge, on slots. First all counters are read, then all asks are
-- weighed in turn, then what was charged is written. An ask with a counter that is garbage or of another clock is left
-- over, and so is any later one that shares a counter with it; one of several charges also if one of them is on slots that
-- were charged ahead of now, which moves them all.

local SLOT = 14
-- More units than fit anywhere.
local FULL = 2 ^ 53

local kinds, counters = string.byte(several), 0
for kind = 1, kinds do
  counters = counters + unpack('>H', several, 11 * kind - 9)
end

-- Of each counter, by its place among these: what was found, or false; what stays in front of what is charged, if not all
-- does; units by now and when it was found. One that asks are left over for is full. Tables that are made as large
-- as they become need not grow, which would take longer than what they are for.
-- One of the wrong type reads as none.
local text_of = redis.call('MGET', spread(KEYS, k + 1, k + counters))
local live_of, found_of
if counters > 3 then
  live_of, found_of = { spread(KEYS, k + 1, k + counters) }, { spread(KEYS, k + 1, k + counters) }
else
  live_of, found_of = { 0, 0, 0 }, { 0, 0, 0 }
end
local kept_of = { nil, nil, nil }
-- Of slots: units in front of those that count.
local before_of
-- The slot that is charged, if it is ahead of that of now.
local ahead_of = {}
-- Of each kind of counter: how many there are, where the TTL ends of those that are written anew, a unit as it is written
-- if they are logs, or the slot of now if they are slots, and how long that is.
local of_kinds = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
-- Units by the time from which on asks were left over, if any were.
local closed_of
local before_all = k

-- How many slots from the first on have a number of at most `bound`: their index, or units up to them.
local INDEX, UP_TO = 1, 8
local function leading(text, number, bound)
  local step, low, high = 1, 0, (#text - 1) / SLOT
  while low + step <= high and unpack('>I7', text, 1 + number + (low + step - 1) * SLOT) <= bound do
    low, step = low + step, step * 2
  end
  high = math.min(low + step - 1, high)
  while low < high do
    local middle = floor((low + high) / 2)
    if unpack('>I7', text, 1 + number + middle * SLOT) <= bound then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- What stays of a text up to `last`, if it is written anew. Where many slots have left the window, the last of them stays,
-- for the units up to it.
local function kept_from(text, first, count, last)
  return 'S' .. string.sub(text, first * 4 < count and 2 or 2 + (first - 1) * SLOT, last)
end

local at_byte, i = 2, 0
for kind = 1, kinds do
  local keys, slots, window
  keys, slots, window, at_byte = unpack('>HHI7', several, at_byte)
  if slots == 0 then
    local bytes, format, range, cutoff, grain, grain_start, ends, one
    -- @include log_window.lua
    of_kinds[kind * 4 - 3], of_kinds[kind * 4 - 2], of_kinds[kind * 4 - 1] = keys, ends, one
    for _ = 1, keys do
      i = i + 1
      local text = text_of[i]
      local size, is_ordinary, live = 0, false, FULL
      -- @include log_ordinary.lua
      if is_ordinary then
        live = size / bytes
      else
        local usual, base, count, first, newest = true, now, 0, 0, nil
        -- @include log_found.lua
        if usual then
          live = count - first
          local kept
          -- @include log_kept.lua
          kept_of[i] = kept
        end
      end
      text_of[i], live_of[i], found_of[i] = text, live, live
    end
  else
    local width = floor((window + slots - 1) / slots)
    local slack = math.min(window, 1000000)
    local expired, index, furthest = floor((now + 1 - window) / width) - 1, floor(now / width), floor((now + slack) / width)
    -- A new slot sets the TTL anew; where slots are longer than its slack, every charge does.
    local keeps_ttl = width <= (window > 8000000 and floor(window / 8) or 1000000) - 20000
    of_kinds[kind * 4 - 3], of_kinds[kind * 4 - 2], of_kinds[kind * 4 - 1] = keys, (index + 1) * width + window - 1, index
    of_kinds[kind * 4] = width
    for _ = 1, keys do
      i = i + 1
      local text = text_of[i]
      local before, live, kept = 0, 0, 'S'
      if text then
        local size = #text - 1
        live = FULL
        if size > 0 and size % SLOT == 0 and string.byte(text) == 83 then
          local count, first = size / SLOT, leading(text, INDEX, expired)
          if first == count then
            text, live = false, 0
          else
            local oldest
            local newest, all = unpack('>I7I7', text, size - 12)
            if first == 0 then
              oldest = unpack('>I7', text, 2)
            else
              before, oldest = unpack('>I7I7', text, first * SLOT - 5)
            end
            if
              oldest <= newest
              and newest <= furthest
              and (newest - oldest - 2) * width <= window + slack
              and (newest >= index or count - first < slots + 2)
              and before <= all
              and all < 2 ^ 52
            then
              live = all - before
            end
            if newest > index then
              ahead_of[i] = newest
            end
            if newest >= index and first * 4 < count and keeps_ttl then
              kept = false
            else
              kept = kept_from(text, first, count, newest >= index and -1 - SLOT or -1)
            end
          end
        end
      end
      if before_of then
        before_of[i] = before
      else
        before_of = { [i] = before }
      end
      text_of[i] = text
      kept_of[i] = kept
      live_of[i] = live
      found_of[i] = live
    end
  end
end

-- Lets what a held ask takes be charged in the slot that its hold ends in. False if that cannot be told here: something
-- was charged before it in this call, or the window has no room for another slot.
local function moves_ahead(i, held_in, shape)
  local text, slots, window = text_of[i], unpack('>HI7', several, shape + 25)
  local width = floor((window + slots - 1) / slots)
  local now_in = floor(now / width)
  if (ahead_of[i] or now_in) >= held_in then
    return true
  elseif live_of[i] > found_of[i] then
    return false
  end
  if text and unpack('>I7', text, #text - SLOT + 1) >= now_in then
    local count, first = (#text - 1) / SLOT, leading(text, INDEX, floor((now + 1 - window) / width) - 1)
    if count - first >= slots + 2 then
      return false
    end
    kept_of[i] = kept_from(text, first, count, -1)
  end
  ahead_of[i] = held_in
  return true
end

local shapes, shape_at, runs = string.byte(several, at_byte), { false }, nil
at_byte = at_byte + 1
for shape = 1, shapes do
  shape_at[shape] = at_byte
  at_byte = at_byte + 15 + 19 * string.byte(several, at_byte + 14)
end
runs, at_byte = unpack('>H', several, at_byte)
-- Few counters have places of one byte.
local place_bytes = i < 256 and 1 or 2
-- Of each charge of a shape: what all that is wanted takes, and what leaves room for one more grant.
local takes, leaves_room = { 0, 0, 0 }, { 0, 0, 0 }
for _ = 1, runs do
  local shape, asks
  shape, asks, at_byte = unpack('>BB', several, at_byte)
  shape = shape_at[shape]
  local not_after, want, hold, charges = unpack('>I7I4I3B', several, shape)
  for each = 1, charges do
    local cost, capacity = unpack('>I5I5', several, shape + 19 * each - 4)
    takes[each], leaves_room[each] = cost * want, capacity - cost
  end
  -- The slot that the hold ends in, if it is ahead of that of now.
  local held_in
  if hold > 0 then
    local slots, window = unpack('>HI7', several, shape + 25)
    local width = floor((window + slots - 1) / slots)
    held_in = floor((now + hold) / width)
    if held_in == floor(now / width) then
      held_in = nil
    end
  end
  local next_run, places, place = at_byte + place_bytes * asks * charges, nil, 0
  if place_bytes == 1 then
    places = { string.byte(several, at_byte, next_run - 1) }
  else
    places = { unpack(string.rep('>H', asks * charges), several, at_byte) }
  end
  at_byte = next_run
  local too_late = now > not_after and 1
  local tried = too_late and 0 or charges
  for _ = 1, asks do
    local short = too_late
    for each = 1, tried do
      local i = places[place + each]
      local used = live_of[i] + takes[each]
      if used > leaves_room[each] or ahead_of[i] ~= held_in then
        short = each
        break
      end
      live_of[i] = used
      replies[answered + each] = used
    end
    if not short then
      answered = answered + charges
    else
      for each = 1, short - 1 do
        local i = places[place + each]
        live_of[i], replies[answered + each] = live_of[i] - takes[each], nil
      end
      answered = answered + 1
      local granted, usual = want, true
      for each = 1, charges do
        local i, cost, capacity = places[place + each], unpack('>I5I5', several, shape + 19 * each - 4)
        local live = live_of[i]
        if live == FULL or charges > 1 and ahead_of[i] then
          usual = false
        elseif live + cost * granted > capacity then
          granted = live < capacity and floor((capacity - live) / cost) or 0
        end
      end
      -- Nothing of the slot of now is charged behind what is charged ahead of it.
      if usual and granted > 0 and held_in and not too_late then
        usual = moves_ahead(places[place + 1], held_in, shape)
      end
      at_length = true
      if too_late then
        replies[answered] = -1
      elseif not usual then
        left_over, closed_of = left_over or {}, closed_of or {}
        local ask = { reply = answered, want = want, hold = hold, not_after = not_after, charges = {} }
        for each = 1, charges do
          local i, cost, capacity, slots, window = places[place + each], unpack('>I5I5HI7', several, shape + 19 * each - 4)
          ask.charges[each] =
            { k = before_all + i, cost = cost, enforced = true, capacity = capacity, slots = slots, window = window }
          if live_of[i] < FULL then
            closed_of[i], live_of[i] = live_of[i], FULL
          end
        end
        left_over[#left_over + 1] = ask
      else
        local reply = { granted, 0 }
        for each = 1, charges do
          local i, cost, capacity, slots, window = places[place + each], unpack('>I5I5HI7', several, shape + 19 * each - 4)
          local text, found, used = text_of[i], found_of[i], live_of[i] + cost * granted
          live_of[i] = used
          -- Of a log, slots are microseconds.
          local width, slot, newest, base, bytes, format = 1, now, nil, nil, nil, nil
          if slots > 0 then
            width = floor((window + slots - 1) / slots)
            slot = ahead_of[i] or floor(now / width)
            newest = text and unpack('>I7', text, #text - SLOT + 1)
            reply[2] = math.max(hold, slot * width - now)
          elseif text then
            bytes = window <= 1000000000 and 4 or window <= 250000000000 and 5 or 6
            format = '>I' .. bytes
            base = unpack('>I7', text, 2)
            newest = base + (unpack(format, text, #text - bytes + 1) - base) % 256 ^ bytes
          end
          local stays = width - 1 + window - now
          local of_charged = slot * width + stays
          -- One more grant fits when so many have left.
          local to_leave, retry = used + cost - capacity, 0
          if cost > capacity then
            retry = -1
          elseif to_leave > found then
            retry = of_charged
          elseif to_leave > 0 then
            local last
            if slots > 0 then
              last = unpack('>I7', text, 2 + SLOT * leading(text, UP_TO, before_of[i] + to_leave - 1))
            else
              local from = #text + 1 - (found - to_leave + 1) * bytes
              last = base + (unpack(format, text, from) - base) % 256 ^ bytes
            end
            -- Of garbage, even the last is not the latest.
            retry = math.max(math.min(last, newest) * width + stays, 1)
          end
          local empty = used > found and of_charged or newest and newest * width + stays or 0
          local size = 4 * each - 1
          reply[size], reply[size + 1], reply[size + 2], reply[size + 3] = granted, used, retry, empty
        end
        replies[answered] = reply
      end
    end
    place = place + charges
  end
end

if closed_of then
  for closed, live in pairs(closed_of) do
    live_of[closed] = live
  end
end
i = 0
for kind = 1, kinds do
  local one, ends, ttl = of_kinds[kind * 4 - 1], of_kinds[kind * 4 - 2], nil
  local is_log = type(one) == 'string'
  for _ = 1, of_kinds[kind * 4 - 3] do
    i = i + 1
    local live = live_of[i]
    local units = live - found_of[i]
    if units > 0 then
      local k, kept, added, ahead = before_all + i, kept_of[i], one, ahead_of[i]
      if not is_log then
        added = pack('>I7I7', ahead or one, before_of[i] + live)
      elseif units > 1 then
        added = string.rep(one, units)
      end
      if kept and ahead then
        redis.call('SET', KEYS[k], kept .. added, 'PX', ttl_to(ends + (ahead - one) * of_kinds[kind * 4]))
      elseif kept then
        ttl = ttl or ttl_to(ends)
        redis.call('SET', KEYS[k], kept .. added, 'PX', ttl)
      elseif not is_log then
        redis.call('SETRANGE', KEYS[k], #text_of[i] - SLOT, added)
      else
        redis.call('APPEND', KEYS[k], added)
      end
    end
  end
end
