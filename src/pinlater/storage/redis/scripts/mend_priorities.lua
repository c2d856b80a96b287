-- Which priorities queues have, made anew from the totals that there are. Idempotent, so it needs no lease.
--   ARGV[1] {ids} of queues; some hundred keys are asked for each, so only a few
-- Answers {}.
local GROUP = 16
even_when_full()
for _, queue in ipairs(cmsgpack.unpack(ARGV[1])) do
    local known, all = call('HGET', T .. 'pr', queue) or '', {}
    for first = 0, 255, GROUP do
        local keys = {}
        for number = first, first + GROUP - 1 do
            keys[#keys + 1] = T .. 'n' .. queue .. char(number)
        end
        local some = call('EXISTS', unpack(keys)) > 0
        for number = first, first + GROUP - 1 do
            local there = string.find(known, char(number), 1, true)
            if there or some and call('EXISTS', keys[number - first + 1]) == 1 then
                all[#all + 1] = char(number)
            end
        end
    end
    if #all > 0 then
        call('HSET', T .. 'pr', queue, concat(all))
    end
end
return {}
