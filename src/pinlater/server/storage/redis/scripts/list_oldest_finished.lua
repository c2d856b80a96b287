-- The oldest finished job of each line and state of some queues. Changes nothing.
--   ARGV[1] {ids} of queues
-- Answers {rows, how many queues it got through}; rows: {queue and priority, index ('s' or 'f'), finished at, ...}. Ends after two
-- hundred lines or some more.
local LINES_MAX = 200
local ids, rows, lines = cmsgpack.unpack(ARGV[1]), {}, 0
local known = fetch('HMGET', T .. 'pr', ids)
local place = 1
while place <= #ids and lines < LINES_MAX do
    local priorities = known[place] or ''
    for p = 1, #priorities do
        local line = ids[place] .. sub(priorities, p, p)
        for _, index in ipairs({ 's', 'f' }) do
            local first = call('ZRANGE', T .. index .. line, 0, 0, 'WITHSCORES')
            if first[2] then
                rows[#rows + 1] = line
                rows[#rows + 1] = index
                rows[#rows + 1] = first[2]
            end
        end
    end
    lines = lines + #priorities
    place = place + 1
end
return { rows, place - 1 }
