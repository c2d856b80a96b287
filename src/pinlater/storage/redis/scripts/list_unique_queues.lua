-- Queues that have unique keys: {name, lowest id, ...}. Looks at a bounded part of the keys, and gives 0 for the id where there are
-- more. Changes nothing.
local LOOKED_AT_MAX = 2000
local all, rows = call('HGETALL', T .. 'q'), {}
for i = 1, #all, 2 do
    local key = T .. 'u' .. all[i + 1]
    local count = call('HLEN', key)
    if count > 0 then
        local lowest = nil
        if count <= LOOKED_AT_MAX then
            for _, held in ipairs(call('HVALS', key)) do
                local id = sub(held, 3, 10)
                if not lowest or id < lowest then
                    lowest = id
                end
            end
        end
        rows[#rows + 1] = all[i]
        rows[#rows + 1] = lowest or string.rep('\0', 8)
    end
end
return rows
