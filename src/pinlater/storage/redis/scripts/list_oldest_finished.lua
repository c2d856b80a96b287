-- The oldest finished job of each line and state: {queue and priority, index ('s' or 'f'), finished at, ...}. Changes nothing.
local rows = {}
for _, queue in ipairs(call('HVALS', T .. 'q')) do
    local priorities = call('HGET', T .. 'pr', queue) or ''
    for p = 1, #priorities do
        local line = queue .. sub(priorities, p, p)
        for _, index in ipairs({ 's', 'f' }) do
            local first = call('ZRANGE', T .. index .. line, 0, 0, 'WITHSCORES')
            if first[2] then
                rows[#rows + 1] = line
                rows[#rows + 1] = index
                rows[#rows + 1] = first[2]
            end
        end
    end
end
return rows
