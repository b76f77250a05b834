-- The server's time, in microseconds since the epoch, read once per call. Arithmetic reads digits by itself.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
