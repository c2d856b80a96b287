-- Makes queues; one that is there stays as it is.
--   ARGV[3] {names}        ARGV[4] the number to begin with where the last one isn't known: at random, so that where it was lost together
--           with the names, what older queues left doesn't become a new one's
local again = before()
if again then
    return again
end
for _, name in ipairs(cmsgpack.unpack(ARGV[3])) do
    if call('HEXISTS', T .. 'q', name) == 0 then
        call('HSETNX', T .. 'meta', 'queues', ARGV[4])
        local queue
        repeat
            queue = pack('>I4', call('HINCRBY', T .. 'meta', 'queues', 1))
        until call('HEXISTS', T .. 'qn', queue) == 0 and call('SISMEMBER', T .. 'z', queue) == 0
        call('HSET', T .. 'q', name, queue)
        call('HSET', T .. 'qn', queue, name)
    end
end
return done({})
