-- The sliding window in slots. Text: 'S', then for each slot in which anything was charged, in order: index, units in it
-- and all before it in the text, 7 bytes each.
--
-- What has left the window stays in front until it is a quarter of the text, so that an ordinary charge writes the last
-- slot over. A state has: body (the slots as Redis has them), count (slots, the last one included), first (the first of
-- them that still counts), before (units in front of that), index and all (the last slot, which is not read from the body).

make[SLOTS] = function()
  local slots = {}

  local SLOT = 14

  local function slot_at(s, at)
    if at == s.count - 1 then
      return s.index, s.all
    end
    return struct.unpack('>I7I7', s.body, at * SLOT + 1)
  end

  local function ending(terms, index)
    return (index + 1) * terms.width + terms.window - 1
  end

  local function hold_nothing(s)
    s.first, s.count, s.before, s.index, s.all, s.body = 0, 0, 0, 0, 0, ''
  end

  function slots.load(s, text)
    hold_nothing(s)
    if text and #text > 1 and (#text - 1) % SLOT == 0 and string.byte(text) == 83 then
      s.body, s.count = string.sub(text, 2), quotient(#text - 1, SLOT)
      s.index, s.all = struct.unpack('>I7I7', s.body, #s.body - SLOT + 1)
      s.old_count, s.old_index = s.count, s.index
    end
  end

  function slots.total(s)
    return math.max(s.all - s.before, 0)
  end

  function slots.repair(s)
    local terms = s.terms
    if s.count == 0 then
      return
    end
    s.first = count_leading(0, s.count, function(at)
      return ending(terms, (slot_at(s, at))) <= now
    end)
    if s.first == s.count then
      hold_nothing(s)
      return
    end
    if s.first > 0 then
      local _, before = slot_at(s, s.first - 1)
      s.before = before
    end
    local oldest, newest, width = slot_at(s, s.first), s.index, terms.width
    -- As with a log: of another clock, or garbage. Stamps can lie anywhere in the oldest slot and the newest.
    if
      oldest > quotient(now + terms.slack, width)
      or newest < oldest
      or (newest - oldest - 2) * width > terms.window + terms.slack
    then
      local total = math.min(slots.total(s), 2 * MOST_UNITS)
      hold_nothing(s)
      s.count, s.index, s.all = 1, quotient(now, width), total
      s.repaired = true
    end
  end

  function slots.free(s, terms)
    return math.max(terms.capacity - slots.total(s), 0)
  end

  function slots.earliest_later(s, terms, cost)
    local to_leave = slots.total(s) + cost - terms.capacity + s.before
    local at = count_leading(s.first, s.count, function(at)
      local _, upto = slot_at(s, at)
      return upto < to_leave
    end)
    -- Of garbage, even the last is not the latest.
    return ending(terms, math.min((slot_at(s, math.min(at, s.count - 1))), s.index))
  end

  function slots.empty_at(s, terms)
    if s.count == 0 then
      return 0
    end
    return ending(terms, s.index)
  end

  function slots.tail(s, terms)
    return s.index * terms.width
  end

  function slots.latest(_, terms)
    return now + terms.slack
  end

  function slots.charge(s, terms, stamp, units)
    units = math.min(units, 2 * MOST_UNITS - slots.total(s))
    if units <= 0 then
      return
    end
    local index = quotient(stamp, terms.width)
    -- Where stamps ahead of the clock would need more slots, the newest two become one, as of the later.
    if s.count == 0 or s.index ~= index and s.count - s.first < terms.extra + 2 then
      if s.count > 0 then
        s.body = string.sub(s.body, 1, (s.count - 1) * SLOT) .. struct.pack('>I7I7', s.index, s.all)
      end
      s.count = s.count + 1
    end
    s.index, s.all = index, s.all + units
  end

  function slots.give_back(s, terms, stamp, units)
    local index = quotient(stamp, terms.width)
    local at = count_leading(s.first, s.count, function(each)
      return slot_at(s, each) < index
    end)
    if at == s.count or slot_at(s, at) ~= index or slots.total(s) >= 2 * MOST_UNITS then
      return
    end
    local counts = {}
    local before = s.before
    for each = s.first, s.count - 1 do
      local slot, upto = slot_at(s, each)
      local here = upto - before - (each == at and units or 0)
      if here < 0 then
        return
      end
      if here > 0 then
        counts[#counts + 1] = { slot, here }
      end
      before = upto
    end
    slots.hold(s, counts)
    s.changed = true
  end

  -- Holds these slots, each with the units in it.
  function slots.hold(s, counts)
    hold_nothing(s)
    local records = {}
    for each, slot in ipairs(counts) do
      s.index, s.all = slot[1], s.all + slot[2]
      records[each] = struct.pack('>I7I7', s.index, s.all)
    end
    s.count, s.body = #records, table.concat(records)
  end

  function slots.is_empty(s)
    return s.count == 0
  end

  function slots.ttl(s, terms)
    -- A new slot sets the TTL anew; where slots are longer than its slack, every charge does.
    return s.index == s.old_index and terms.width <= terms.grain, ending(terms, s.index)
  end

  function slots.text(s)
    if s.first > 0 then
      local counts, before = {}, s.before
      for each = s.first, s.count - 1 do
        local slot, upto = slot_at(s, each)
        counts[#counts + 1] = { slot, upto - before }
        before = upto
      end
      slots.hold(s, counts)
    end
    return 'S' .. string.sub(s.body, 1, (s.count - 1) * SLOT) .. struct.pack('>I7I7', s.index, s.all)
  end

  -- What to write over, from where, if that is all that changes.
  function slots.overwritten(s)
    if s.count == s.old_count and s.first * 4 < s.count then
      return 1 + (s.count - 1) * SLOT, struct.pack('>I7I7', s.index, s.all)
    end
    return nil
  end

  return slots
end
