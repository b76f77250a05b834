-- Lines of acquire.lua: how a log of `window` µs is packed, and where its TTL ends. Sets bytes, format, range, cutoff
-- (what is no later has left the window), grain, grain_start, ends, and one, a unit as it is written.

if window <= 1000000000 then
  bytes, format, range = 4, '>I4', 4294967296
elseif window <= 250000000000 then
  bytes, format, range = 5, '>I5', 1099511627776
else
  bytes, format, range = 6, '>I6', 281474976710656
end
cutoff = now - window
grain = (window > 8000000 and (window - window % 8) / 8 or 1000000) - 20000
grain_start = now - now % grain
ends = grain_start + grain + window
one = pack(format, now % range)
