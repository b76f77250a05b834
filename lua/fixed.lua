-- The fixed window. Text: 'F', expiry (ms), grain, index, units, 7 bytes each.

make[FIXED] = function()
  local fixed = {}

  function fixed.index_at(terms, time)
    return quotient(time + terms.window - terms.extra, terms.window)
  end

  function fixed.load(s, text)
    s.index, s.used = 0, 0
    if text and #text == 29 and string.byte(text) == 70 then
      s.expires, s.grain, s.index, s.used = struct.unpack('>I7I7I7I7', text, 2)
      s.used = math.min(s.used, MOST_UNITS)
    end
  end

  function fixed.ending(s, terms)
    return s.index * terms.window + terms.extra
  end

  function fixed.start(s, terms)
    return math.max(fixed.ending(s, terms) - terms.window, 0)
  end

  function fixed.repair(s)
    local terms = s.terms
    local index = fixed.index_at(terms, now)
    if index > s.index or s.used == 0 then
      s.index, s.used = index, 0
    elseif is_foreign(terms, fixed.start(s, terms)) then
      s.index = index
      s.repaired = true
    end
  end

  function fixed.free(s, terms)
    return math.max(terms.capacity - s.used, 0)
  end

  function fixed.empty_at(s, terms)
    return s.used > 0 and fixed.ending(s, terms) or 0
  end

  function fixed.tail(s, terms)
    return fixed.start(s, terms)
  end

  function fixed.latest(s, terms)
    return math.min(now + terms.slack, fixed.ending(s, terms) - 1)
  end

  function fixed.charge(s, _, _, units)
    s.used = math.min(s.used + units, MOST_UNITS)
  end

  function fixed.give_back(s, terms, stamp, units)
    if fixed.index_at(terms, stamp) == s.index and s.used >= units and s.used < MOST_UNITS then
      s.used, s.changed = s.used - units, true
    end
  end

  function fixed.is_empty(s)
    return s.used == 0
  end

  function fixed.ttl(s, terms)
    return ttl_in_text(s, terms, fixed.empty_at(s, terms), 0)
  end

  function fixed.text(s)
    return struct.pack('>BI7I7I7I7', 70, s.expires, s.grain, s.index, s.used)
  end

  function fixed.report(s)
    return s.index, s.used, 0
  end

  return fixed
end
