-- Queues' names and ids, each made anew from the other where one of them is gone. Idempotent, so it needs no lease.
--   ARGV[1] which to walk through: 'q' or 'qn'        ARGV[2] where to go on, '0' at first        ARGV[3] about how many
-- Answers {where to go on, '0' at the end, how many were repaired}. A queue whose name another queue has now is deleted.
local found = call('HSCAN', T .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
local pairs_, repaired = found[2], 0
even_when_full()
for i = 1, #pairs_, 2 do
    if ARGV[1] == 'q' then
        repaired = repaired + call('HSETNX', T .. 'qn', pairs_[i + 1], pairs_[i])
    else
        local queue, name = pairs_[i], pairs_[i + 1]
        local id = call('HGET', T .. 'q', name)
        if not id then
            call('HSET', T .. 'q', name, queue)
            repaired = repaired + 1
        elseif id ~= queue then
            call('HDEL', T .. 'qn', queue)
            call('HDEL', T .. 'qc', queue)
            call('SADD', T .. 'z', queue)
        end
    end
end
return { found[1], repaired }
