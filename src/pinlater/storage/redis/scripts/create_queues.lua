-- Makes queues; one that is there stays as it is.
--   ARGV[3] {names}
local again = before()
if again then
    return again
end
for _, name in ipairs(cmsgpack.unpack(ARGV[3])) do
    if call('HEXISTS', T .. 'q', name) == 0 then
        call('HSET', T .. 'q', name, pack('>I4', call('HINCRBY', T .. 'meta', 'queues', 1)))
    end
end
return done({})
