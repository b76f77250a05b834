-- Blocks keys under their penalties for some time, or forgets what they did.
--
-- KEYS  the penalties' states, each once.
-- ARGV  not after (server time in µs), how long (µs; 0 forgets), and the penalty of each key, as in penalty.lua.
-- Reply the server's time (µs), then -1 if it came too late and nothing was done, else 0.

-- @include now.lua
-- @include ttl_to.lua
-- @include value.lua
-- @include penalty.lua

if now > tonumber(ARGV[1]) then
  return { now, -1 }
end
local time = tonumber(ARGV[2])
local penalties = make_penalties()
for each = 1, #KEYS do
  local penalty = penalties.at(6 * each - 3)
  local s = penalties.state_of(penalty)
  penalties.block(s, penalty, time)
  if time == 0 then
    redis.call('DEL', KEYS[penalty.k])
  else
    redis.call('SET', KEYS[penalty.k], penalties.text(s), 'PX', ttl_to(penalties.expires_at(s, penalty)))
  end
end
return { now, 0 }
