-- Makes queues, and sets what is kept with them, if all are still as the caller thinks.
--   ARGV[3] {{name, id, settings, when one of this name was deleted, what is to be kept, 2^31 for one that is ordered as a whole, else 0}, ...},
--           '' where there is none (`find_states.lua`)
--   ARGV[4] the number to begin with where the last one isn't known: at random, so that where it was lost together
--           with the names, what older queues left doesn't become a new one's
-- Answers {1}; {2} where one is otherwise by now, and nothing is changed.
local again = before()
if again then
    return again
end
local changes = cmsgpack.unpack(ARGV[3])
for _, change in ipairs(changes) do
    local name, queue = change[1], call('HGET', T .. 'q', change[1]) or ''
    local kept = queue ~= '' and call('HGET', T .. 'qc', queue) or ''
    if queue ~= change[2] or kept ~= change[3] or (call('ZSCORE', T .. 'qd', name) or '') ~= change[4] then
        return done({ 2 })
    end
end
for _, change in ipairs(changes) do
    local name, queue = change[1], call('HGET', T .. 'q', change[1]) or ''
    if queue == '' then
        call('HSETNX', T .. 'meta', 'queues', ARGV[4])
        repeat
            queue = pack('>I4', call('HINCRBY', T .. 'meta', 'queues', 1) + change[6])
        until call('HEXISTS', T .. 'qn', queue) == 0 and call('SISMEMBER', T .. 'z', queue) == 0
        call('HSET', T .. 'q', name, queue)
        call('HSET', T .. 'qn', queue, name)
    end
    if change[5] ~= '' then
        call('HSET', T .. 'qc', queue, change[5])
    elseif change[3] ~= '' then
        call('HDEL', T .. 'qc', queue)
    end
end
return done({ 1 })
