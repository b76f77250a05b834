-- Forgets counters and states of penalties.
--
-- KEYS  their keys.
-- ARGV  not after (server time in µs).
-- Reply the server's time (µs), then -1 if it came too late and nothing was done, else 0.

-- @include now.lua

if now > tonumber(ARGV[1]) then
  return { now, -1 }
end
for k = 1, #KEYS do
  redis.call('DEL', KEYS[k])
end
return { now, 0 }
