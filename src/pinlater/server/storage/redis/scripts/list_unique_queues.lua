-- Which of some queues have unique keys. Changes nothing.
--   ARGV[1] {ids} of queues
-- Answers {rows, how many queues it got through}; rows: {id, lowest id of a job, ...}, the latter 0 where there are too many keys to look
-- at. Ends after some thousand keys.
local LOOKED_AT_MAX = 2000
local ids, rows, looked_at = cmsgpack.unpack(ARGV[1]), {}, 0
local place = 1
while place <= #ids and looked_at < LOOKED_AT_MAX do
    local key = T .. 'u' .. ids[place]
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
            looked_at = looked_at + count
        end
        rows[#rows + 1] = ids[place]
        rows[#rows + 1] = lowest or string.rep('\0', 8)
    end
    looked_at = looked_at + 1
    place = place + 1
end
return { rows, place - 1 }
