-- Renews a server's lease; with ARGV[3], also stores what other servers are to know of it.
--   ARGV[1] the lease, 16 bytes        ARGV[2] slot        ARGV[3] what others are to know, or ''
-- Answers {Redis' time in ms, what others knew of the server before}; {0, ''} where the slot is another's.
local known = call('HGET', T .. 'servers', ARGV[2])
if not known or sub(known, 1, 16) ~= ARGV[1] then
    return { 0, '' }
end
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local now8 = pack('>I8', now)
even_when_full()
call('HSET', T .. 'servers', ARGV[2], sub(known, 1, 24) .. now8 .. (ARGV[3] ~= '' and ARGV[3] or sub(known, 33)))
return { now, sub(known, 33) }
