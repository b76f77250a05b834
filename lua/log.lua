-- The sliding window as an exact log. Text: 'L', time of the first unit (7 bytes), then for each unit, in order, the last
-- terms.bytes of its time, from which the whole time follows: units lie less than terms.range apart.
--
-- What has left the window stays in front until it is a quarter of the log, so that an ordinary charge appends a few
-- bytes. A state has: base (time of the first unit), body (the units), count (of them), first (the first of them that
-- still counts), kept (bytes of the body that Redis has, if it can be appended to).

make[LOG] = function()
  local log = {}

  local function end_of(s, index)
    return (struct.unpack(s.terms.format, s.body, index * s.terms.bytes + 1))
  end

  local function log_time(s, index)
    return s.base + (end_of(s, index) - s.base) % s.terms.range
  end

  local function packed(terms, time)
    return struct.pack(terms.format, time % terms.range)
  end

  function log.load(s, text)
    local bytes = s.terms.bytes
    s.base, s.first, s.count, s.body = 0, 0, 0, ''
    if text and #text > 8 and (#text - 8) % bytes == 0 and string.byte(text) == 76 then
      s.base = struct.unpack('>I7', text, 2)
      s.body = string.sub(text, 9)
      s.count = quotient(#text - 8, bytes)
      s.kept = #s.body
    end
  end

  function log.total(s)
    return s.count - s.first
  end

  -- Forgets what has left the window.
  local function cut(s)
    s.base, s.body = log_time(s, s.first), string.sub(s.body, s.first * s.terms.bytes + 1)
    s.count, s.first, s.kept = s.count - s.first, 0, nil
  end

  function log.repair(s)
    local terms = s.terms
    if s.count == 0 then
      return
    end
    local newest = log_time(s, s.count - 1)
    s.old_grain = quotient(newest, terms.grain)
    if newest + terms.window <= now then
      s.first = s.count
      return
    end
    s.first = count_leading(0, s.count, function(index)
      return log_time(s, index) + terms.window <= now
    end)
    if s.first < s.count and are_foreign(terms, log_time(s, s.first), newest) then
      local live = log.total(s)
      s.base, s.first, s.count, s.kept = now, 0, live, nil
      s.body = string.rep(packed(terms, now), live)
      s.repaired = true
    end
  end

  function log.free(s, terms)
    return math.max(terms.capacity - log.total(s), 0)
  end

  function log.earliest_later(s, terms, cost)
    local to_leave = log.total(s) + cost - terms.capacity
    -- Of garbage, even the last is not the latest.
    return math.min(log_time(s, s.first + to_leave - 1), log_time(s, s.count - 1)) + terms.window
  end

  function log.empty_at(s, terms)
    if log.total(s) == 0 then
      return 0
    end
    return log_time(s, s.count - 1) + terms.window
  end

  function log.tail(s)
    if log.total(s) == 0 then
      return 0
    end
    return log_time(s, s.count - 1)
  end

  function log.latest(_, terms)
    return now + terms.slack
  end

  function log.charge(s, terms, stamp, units)
    units = math.min(units, MOST_IN_LOG)
    local excess = log.total(s) + units - MOST_IN_LOG
    if excess > 0 then
      s.first = s.first + math.min(excess, log.total(s))
    end
    if log.total(s) == 0 then
      s.base, s.first, s.count, s.body, s.kept = stamp, 0, 0, '', nil
    elseif stamp - s.base >= terms.range then
      cut(s)
    end
    s.body = s.body .. string.rep(packed(terms, stamp), units)
    s.count = s.count + units
  end

  function log.give_back(s, terms, stamp, units)
    if log.total(s) >= MOST_IN_LOG then
      return
    end
    local first = count_leading(s.first, s.count, function(index)
      return log_time(s, index) < stamp
    end)
    local last = count_leading(first, s.count, function(index)
      return log_time(s, index) <= stamp
    end)
    if last - first >= units then
      local bytes = terms.bytes
      -- The base is the first unit's.
      if first == 0 and units < s.count then
        s.base = log_time(s, units)
      end
      s.body = string.sub(s.body, 1, first * bytes) .. string.sub(s.body, (first + units) * bytes + 1)
      s.count, s.kept, s.changed = s.count - units, nil, true
    end
  end

  function log.is_empty(s)
    return log.total(s) == 0
  end

  function log.ttl(s, terms)
    local grain = quotient(log.tail(s), terms.grain)
    return grain == s.old_grain, (grain + 1) * terms.grain + terms.window
  end

  function log.text(s)
    if s.first > 0 then
      cut(s)
    end
    return struct.pack('>BI7', 76, s.base) .. s.body
  end

  -- What to write after what Redis has, if that is all that changes.
  function log.appended(s)
    if s.kept and s.first * 4 < s.count then
      return string.sub(s.body, s.kept + 1)
    end
    return nil
  end

  return log
end
