-- Lines of acquire.lua: what stays of the log that was found as `text`, in front of what is charged now. Sets kept, unless
-- all stays and its TTL is right, so that Redis can append.

if not text then
  kept = pack('>BI7', 76, now)
elseif first * 4 >= count or newest < grain_start or now - base >= range then
  kept = text
  if first > 0 then
    local from = 9 + first * bytes
    local oldest = base + (unpack(format, text, from) - base) % range
    kept = pack('>BI7', 76, oldest) .. string.sub(text, from)
  end
end
