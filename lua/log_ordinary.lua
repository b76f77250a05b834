-- Lines of acquire.lua: whether a log that was found as `text` is as most are: one that nothing has left, of which nothing
-- is garbage or of another clock, and whose TTL is right, so that Redis can append. Sets size, that of its units, and
-- is_ordinary.

if text then
  -- An error is a table without a length.
  size = #text - 8
  if size > 0 and size % bytes == 0 then
    local tag, base = unpack('>BI7', text)
    if tag == 76 and base > cutoff then
      local newest = base + (unpack(format, text, size + 9 - bytes) - base) % range
      is_ordinary = grain_start <= newest and newest <= now
    end
  end
end
