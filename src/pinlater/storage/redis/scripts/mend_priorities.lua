-- Which priorities queues have, made anew from the indexes that there are. Idempotent, so it needs no lease.
--   ARGV[1] {ids} of queues; a thousand keys are asked for each, so only a few
-- Answers {}.
even_when_full()
for _, queue in ipairs(cmsgpack.unpack(ARGV[1])) do
    local known, all = call('HGET', T .. 'pr', queue) or '', {}
    for number = 0, 255 do
        local priority = char(number)
        local line = queue .. priority
        if
            string.find(known, priority, 1, true)
            or call('EXISTS', T .. 'r' .. line, T .. 'i' .. line, T .. 's' .. line, T .. 'f' .. line, T .. 'n' .. line) > 0
        then
            all[#all + 1] = priority
        end
    end
    if #all > 0 then
        call('HSET', T .. 'pr', queue, concat(all))
    end
end
return {}
