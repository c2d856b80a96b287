-- Deletes queues, at once for every caller; `free_queue.lua` frees their rows.
--   ARGV[3] {names}
local again = before()
if again then
    return again
end
for _, name in ipairs(cmsgpack.unpack(ARGV[3])) do
    local queue = call('HGET', T .. 'q', name)
    if queue then
        call('HDEL', T .. 'q', name)
        call('HDEL', T .. 'qn', queue)
        call('HDEL', T .. 'qc', queue)
        call('SADD', T .. 'z', queue)
    end
end
return done({})
