-- The token bucket. Text: 'B', expiry (ms), grain, time, debt, tick shift, 7 bytes each.

make[BUCKET] = function()
  local bucket = {}

  function bucket.load(s, text)
    s.at, s.debt, s.tick = 0, 0, 1
    if text and #text == 36 and string.byte(text) == 66 then
      local shift
      s.expires, s.grain, s.at, s.debt, shift = struct.unpack('>I7I7I7I7I7', text, 2)
      s.tick = 2 ^ math.min(shift, 52)
    end
  end

  -- The time, debt and tick at `now`: what was paid off up to then is taken off.
  function bucket.level(s, terms)
    local unit = ticks(terms.window, terms.tick)
    local cap = terms.capacity * unit
    local debt
    if s.tick == terms.tick then
      debt = math.min(s.debt, cap)
    else
      local old_unit = ticks(terms.window, s.tick)
      local units = quotient(s.debt, old_unit)
      local part = s.debt % old_unit > 0 and 1 or 0
      debt = math.min(math.min(units, terms.capacity) * unit + part * unit, cap)
    end
    local elapsed = quotient(math.max(now - s.at, 0), terms.tick)
    if elapsed >= quotient_up(debt, terms.rate) then
      return now, 0, unit
    end
    return s.at + elapsed * terms.tick, debt - elapsed * terms.rate, unit
  end

  function bucket.repair(s)
    if is_foreign(s.terms, s.at) then
      s.at = now
      s.repaired = true
    end
  end

  function bucket.free(s, terms)
    local _, debt, unit = bucket.level(s, terms)
    return terms.capacity - quotient_up(debt, unit)
  end

  function bucket.empty_at(s, terms)
    local at, debt = bucket.level(s, terms)
    return at + quotient_up(debt, terms.rate) * terms.tick
  end

  function bucket.tail()
    return 0
  end

  function bucket.latest(_, terms)
    return now + terms.slack
  end

  function bucket.charge(s, terms, stamp, units)
    local at, debt, unit = bucket.level(s, terms)
    if stamp > now or debt == 0 then
      at = math.max(at, stamp - quotient(debt, terms.rate) * terms.tick)
    end
    s.at, s.tick = at, terms.tick
    s.debt = math.min(debt + math.min(units, terms.capacity) * unit, terms.capacity * unit)
  end

  function bucket.give_back(s, terms, stamp, units)
    if is_foreign(terms, stamp) or s.tick ~= terms.tick then
      return
    end
    local owed = math.min(units, terms.capacity) * ticks(terms.window, terms.tick)
    local since = ticks(math.max(now - stamp, 0), terms.tick)
    local paid = math.min(since, quotient_up(owed, terms.rate)) * terms.rate
    local elapsed = quotient(math.max(now - s.at, 0), terms.tick)
    local left = s.debt - math.min(elapsed, quotient(s.debt, terms.rate)) * terms.rate
    local given = math.min(math.max(owed - paid, 0), left)
    if given > 0 then
      s.debt, s.changed = s.debt - given, true
    end
  end

  function bucket.is_empty(s)
    return s.debt == 0
  end

  function bucket.ttl(s, terms)
    return ttl_in_text(s, terms, bucket.empty_at(s, terms), quotient(terms.grain, 2))
  end

  function bucket.shift(s)
    local shift, tick = 0, s.tick
    while tick > 1 do
      shift, tick = shift + 1, tick / 2
    end
    return shift
  end

  function bucket.text(s)
    return struct.pack('>BI7I7I7I7I7', 66, s.expires, s.grain, s.at, s.debt, bucket.shift(s))
  end

  function bucket.report(s)
    return s.at, s.debt, bucket.shift(s)
  end

  return bucket
end
