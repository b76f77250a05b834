-- Lines of acquire.lua: what a log is that was found as `text`. Sets base, count, first, newest; text to false where nothing
-- has a part in the window; usual to false where it is garbage or of another clock.

if text then
  usual = false
  -- An error is a table without a length.
  local size = #text - 8
  if size > 0 and size % bytes == 0 then
    local tag
    tag, base = unpack('>BI7', text)
    newest = base + (unpack(format, text, size - bytes + 9) - base) % range
    count = size / bytes
    usual = tag == 76 and newest <= now
    if newest + window <= now then
      text, count, newest = false, 0, nil
    elseif usual and base + window <= now then
      -- Those that have left the window: one or two in ordinary traffic, searched for where they are many.
      local cutoff, step, last = now - window - base, 1, count - 1
      first = 1
      while first + step <= last and (unpack(format, text, 9 + (first + step - 1) * bytes) - base) % range <= cutoff do
        first, step = first + step, step * 2
      end
      last = math.min(first + step - 1, last)
      while first < last do
        local middle = floor((first + last) / 2)
        if (unpack(format, text, 9 + middle * bytes) - base) % range <= cutoff then
          first = middle + 1
        else
          last = middle
        end
      end
    end
  end
end
