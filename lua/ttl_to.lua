-- A TTL until `ends`, for who needs it in several places.

local function ttl_to(ends)
  local ttl
  -- @include ttl.lua
  return ttl
end
