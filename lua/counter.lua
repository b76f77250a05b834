-- The sliding counter. Text: 'C', expiry (ms), grain, index, current, previous, 7 bytes each.

make[COUNTER] = function()
  local counter = {}

  function counter.load(s, text)
    s.index, s.current, s.previous = 0, 0, 0
    if text and #text == 36 and string.byte(text) == 67 then
      s.expires, s.grain, s.index, s.current, s.previous = struct.unpack('>I7I7I7I7I7', text, 2)
      s.current, s.previous = math.min(s.current, MOST_UNITS), math.min(s.previous, MOST_UNITS)
    end
  end

  function counter.start(s, terms)
    return s.index * terms.window
  end

  function counter.repair(s)
    local terms = s.terms
    local index = quotient(now, terms.window)
    if index > s.index then
      s.previous = index == s.index + 1 and s.current or 0
      s.current, s.index = 0, index
      -- Written even if nothing is charged, once a window: a clock that steps back must not find the window before.
      s.repaired = s.previous > 0
    elseif s.current == 0 and s.previous == 0 then
      s.index = index
    elseif is_foreign(terms, counter.start(s, terms)) then
      s.index = index
      s.repaired = true
    end
  end

  local function counter_tick(units, terms)
    if units <= terms.capacity then
      return terms.tick
    end
    return tick_of(units, terms.window)
  end

  function counter.free(s, terms)
    local rest = terms.window - math.max(now - counter.start(s, terms), 0)
    local weighted = 0
    if s.previous > 0 then
      local tick = counter_tick(s.previous, terms)
      weighted = quotient_up(s.previous * ticks(rest, tick), quotient(terms.window, tick))
      weighted = math.min(weighted, s.previous)
    end
    return math.max(terms.capacity - s.current - weighted, 0)
  end

  function counter.empty_at(s, terms)
    if s.current > 0 then
      return counter.start(s, terms) + 2 * terms.window
    elseif s.previous > 0 then
      return counter.start(s, terms) + terms.window
    end
    return 0
  end

  function counter.tail(s, terms)
    return counter.start(s, terms)
  end

  function counter.latest(s, terms)
    return math.min(now + terms.slack, counter.start(s, terms) + terms.window - 1)
  end

  function counter.charge(s, _, _, units)
    s.current = math.min(s.current + units, MOST_UNITS)
  end

  function counter.give_back(s, terms, stamp, units)
    local index = quotient(stamp, terms.window)
    local field = index == s.index and 'current' or index + 1 == s.index and 'previous'
    if field and s[field] >= units and s[field] < MOST_UNITS then
      s[field], s.changed = s[field] - units, true
    end
  end

  function counter.is_empty(s)
    return s.current == 0 and s.previous == 0
  end

  function counter.ttl(s, terms)
    return ttl_in_text(s, terms, counter.empty_at(s, terms), 0)
  end

  function counter.text(s)
    return struct.pack('>BI7I7I7I7I7', 67, s.expires, s.grain, s.index, s.current, s.previous)
  end

  function counter.report(s)
    return s.index, s.current, s.previous
  end

  return counter
end
