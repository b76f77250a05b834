-- Lines of a script: a TTL until `ends`. Sets ttl, in milliseconds, with some to spare, as TTLs count from the script's start. As
-- text, for Redis would write the number as one with a fraction, which takes longer.

ttl = string.format('%d', math.ceil(math.max(ends - now, 0) / 1000) + 10)
