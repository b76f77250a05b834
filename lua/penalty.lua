-- Penalties: what denials of a key lead to, as src/algorithm/penalty.rs has it, where the reasons stand.
--
-- In ARGV a penalty is: index of its state in KEYS, denials (0 for none that block), within (µs), block (µs), factor,
-- longest (µs). src/store/redis/call.rs writes them.
--
-- The text of a state: 'P', denials, time of the first of them (µs), blocks in a row, end of the last one (µs), its length
-- (µs), 7 bytes each. Anything else is garbage and counts as nothing.

-- Most calls meet no penalty, so its functions are made when the first is met.
local function make_penalties()
  local MAX_BLOCK, MOST_BLOCKS = 366 * 86400 * 1000000, 64
  local penalties, states = {}, {}

  -- The penalty at `at`, and where what follows it is.
  function penalties.at(at)
    return {
      k = tonumber(ARGV[at]),
      denials = tonumber(ARGV[at + 1]),
      within = tonumber(ARGV[at + 2]),
      block = tonumber(ARGV[at + 3]),
      factor = tonumber(ARGV[at + 4]),
      longest = tonumber(ARGV[at + 5]),
    }, at + 6
  end

  local function clear(s)
    s.denials, s.first, s.blocks, s.ends, s.length = 0, 0, 0, 0, 0
  end

  local function read(penalty)
    local s = { k = penalty.k, read_under = penalty }
    clear(s)
    local text = value_of(penalty.k)
    if type(text) == 'string' and #text == 36 and string.byte(text) == 80 then
      s.found = true
      s.denials, s.first, s.blocks, s.ends, s.length = struct.unpack('>I7I7I7I7I7', text, 2)
      s.denials, s.blocks = math.min(s.denials, 2 ^ 32), math.min(s.blocks, MOST_BLOCKS)
      if s.length > MAX_BLOCK then
        clear(s)
        s.written_under = penalty
      end
    elseif text then
      s.written_under = penalty
    end
    return s
  end

  -- The state of a penalty, repaired. Read once per call.
  function penalties.state_of(penalty)
    local s = states[penalty.k]
    if not s then
      s = read(penalty)
      states[penalty.k] = s
    end
    if s.ends > now + s.length then
      s.ends, s.written_under = now + s.length, penalty
    end
    if s.first > now + math.min(penalty.within, 1000000) then
      s.denials, s.first, s.written_under = 0, 0, penalty
    end
    return s
  end

  local function memory(penalty)
    return penalty.factor > 1 and penalty.longest or 0
  end

  local function blocks_in_a_row(s, penalty)
    return now < s.ends + memory(penalty) and s.blocks or 0
  end

  local function length(penalty, blocks)
    local longest, time, grown = penalty.longest, math.min(penalty.block, penalty.longest), 0
    while grown < blocks and time < longest do
      time = time > math.floor(longest / penalty.factor) and longest or time * penalty.factor
      grown = grown + 1
    end
    return time
  end

  -- Counts denials under a penalty, unless the key is blocked.
  function penalties.count(s, penalty, denials)
    if penalty.denials == 0 or s.ends > now then
      return
    end
    if s.denials == 0 or now >= s.first + penalty.within then
      s.denials, s.first = 0, now
    end
    s.denials, s.written_under = math.min(s.denials + denials, 2 ^ 32), penalty
    if s.denials >= penalty.denials then
      local blocks = blocks_in_a_row(s, penalty)
      s.length = length(penalty, blocks)
      s.denials, s.first, s.blocks, s.ends = 0, 0, math.min(blocks + 1, MOST_BLOCKS), now + s.length
    end
  end

  -- Blocks the key for some time, or forgets it for none.
  function penalties.block(s, penalty, time)
    s.written_under = penalty
    if time == 0 then
      return clear(s)
    end
    local blocks = blocks_in_a_row(s, penalty)
    s.length = math.min(time, MAX_BLOCK)
    s.denials, s.first, s.blocks, s.ends = 0, 0, blocks, now + s.length
  end

  -- From this time on the state equals no state.
  function penalties.expires_at(s, penalty)
    local counted = s.denials > 0 and s.first + penalty.within or 0
    local repeated = s.blocks > 0 and s.ends + memory(penalty) or s.ends
    return math.max(counted, repeated)
  end

  -- Writes a state, whatever comes of it: denials stay denials where nothing may be written, such as without memory.
  local function try_to_store(s)
    local expiry = penalties.expires_at(s, s.written_under)
    if expiry <= now then
      redis.pcall('DEL', KEYS[s.k])
    else
      redis.pcall('SET', KEYS[s.k], penalties.text(s), 'PX', ttl_to(expiry))
    end
  end

  function penalties.text(s)
    return struct.pack('>BI7I7I7I7I7', 80, s.denials, s.first, s.blocks, s.ends, s.length)
  end

  -- Whether a state is there that should have expired. Of another penalty it may mean something yet; its TTL tells.
  local function has_lost_ttl(s)
    return s.found and penalties.expires_at(s, s.read_under) <= now and redis.pcall('PTTL', KEYS[s.k]) == -1
  end

  -- Writes what has changed.
  function penalties.store_all()
    for _, s in pairs(states) do
      if s.written_under then
        try_to_store(s)
      elseif has_lost_ttl(s) then
        redis.pcall('DEL', KEYS[s.k])
      end
    end
  end

  return penalties
end
