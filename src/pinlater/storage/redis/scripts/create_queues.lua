-- Makes queues; one that is there stays as it is.
--   ARGV[3] {names}        ARGV[4] the number to begin with where the last one isn't known: at random, so that where it was lost together
--           with the names, what older queues left doesn't become a new one's
-- Answers what is kept with each queue, '' for nothing.
local again = before()
if again then
    return again
end
local kept = {}
for i, name in ipairs(cmsgpack.unpack(ARGV[3])) do
    local known = call('HGET', T .. 'q', name)
    kept[i] = known and call('HGET', T .. 'qc', known) or ''
    if not known then
        call('HSETNX', T .. 'meta', 'queues', ARGV[4])
        local queue
        repeat
            queue = pack('>I4', call('HINCRBY', T .. 'meta', 'queues', 1))
        until call('HEXISTS', T .. 'qn', queue) == 0 and call('SISMEMBER', T .. 'z', queue) == 0
        call('HSET', T .. 'q', name, queue)
        call('HSET', T .. 'qn', queue, name)
    end
end
return done(kept)
