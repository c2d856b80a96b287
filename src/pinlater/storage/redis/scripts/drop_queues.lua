-- What queues left that nobody knows any more is to be freed, as after their deletion. Idempotent, so it needs no lease.
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
