-- Makes queues; one that is there stays as it is.
--   ARGV[3] {names}
local again = before()
if again then
    return again
end
for _, name in ipairs(cmsgpack.unpack(ARGV[3])) do
    if call('HEXISTS', T .. 'q', name) == 0 then
        local queue
        repeat
            -- Where the last number was lost, it begins anew.
            queue = pack('>I4', call('HINCRBY', T .. 'meta', 'queues', 1))
        until call('HEXISTS', T .. 'qn', queue) == 0 and call('SISMEMBER', T .. 'z', queue) == 0
        call('HSET', T .. 'q', name, queue)
        call('HSET', T .. 'qn', queue, name)
    end
end
return done({})
