-- Marks rows of queues without a name to be freed, as after a deletion. Idempotent, so it needs no lease.
--   ARGV[1] {ids}
-- Answers how many there were.
even_when_full()
local dropped = 0
for _, queue in ipairs(cmsgpack.unpack(ARGV[1])) do
    if call('HEXISTS', T .. 'qn', queue) == 0 then
        dropped = dropped + call('SADD', T .. 'z', queue)
    end
end
return dropped
