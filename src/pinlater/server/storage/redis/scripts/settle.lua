-- After a call whose answer is lost for good: whether it was carried out. If it wasn't, it never will be.
--   ARGV[1] writer        ARGV[2] lease and number of the call        ARGV[3] a number above it, 8 bytes
-- Answers {1, what it answered}, {0}, or {2} where the outcome is unknown: another server has the slot now.
local stored = call('GET', T .. 'w' .. ARGV[1])
if not stored or sub(stored, 1, 16) ~= sub(ARGV[2], 1, 16) then
    return { 2 }
end
if sub(stored, 17, 24) == sub(ARGV[2], 17, 24) then
    return { 1, cmsgpack.unpack(sub(stored, 25)) }
end
if sub(stored, 17, 24) < sub(ARGV[2], 17, 24) then
    even_when_full()
    call('SET', T .. 'w' .. ARGV[1], sub(stored, 1, 16) .. ARGV[3] .. cmsgpack.pack({}))
end
return { 0 }
