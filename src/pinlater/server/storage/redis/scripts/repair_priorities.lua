-- Which priorities queues have, made anew from the totals and indexes that there are. Idempotent, so it needs no lease.
--   ARGV[1] {ids} of queues; over a thousand keys are asked for each, so only a few
-- Answers {}.
local GROUP = 16
local LEFT = { 'n', 'r', 'i', 's', 'f' }
even_when_full()

local function keys_of(queue, first, last)
    local keys = {}
    for number = first, last do
        for _, kind in ipairs(LEFT) do
            keys[#keys + 1] = T .. kind .. queue .. char(number)
        end
    end
    return keys
end

for _, queue in ipairs(cmsgpack.unpack(ARGV[1])) do
    local known, all = call('HGET', T .. 'pr', queue) or '', {}
    for first = 0, 255, GROUP do
        local last = first + GROUP - 1
        local some = call('EXISTS', unpack(keys_of(queue, first, last))) > 0
        for number = first, last do
            local there = string.find(known, char(number), 1, true)
            if there or some and call('EXISTS', unpack(keys_of(queue, number, number))) > 0 then
                all[#all + 1] = char(number)
            end
        end
    end
    if #all > 0 then
        call('HSET', T .. 'pr', queue, concat(all))
    end
end
return {}
