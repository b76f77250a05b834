-- The server's time, in microseconds since the epoch, read once per call; and what a key's TTL is made of.

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

-- Milliseconds from now to `time`, with some to spare: TTLs count from the script's start. As text, for Redis would write
-- the number as one with a fraction, which takes longer.
local function ttl_to(time)
  return string.format('%d', math.ceil(math.max(time - now, 0) / 1000) + 10)
end
