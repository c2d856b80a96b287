-- Samples of one step, by time. Changes nothing.
--   ARGV[1] the step, 4 bytes        ARGV[2] from this time on, in ms        ARGV[3] before this time
--   ARGV[4] {queues}, of which none means all        ARGV[5] about how many entries
-- Answers {whether there may be more, {moment, queue, its samples, ...}}. All or nothing of a moment comes.
local queues, most = cmsgpack.unpack(ARGV[4]), tonumber(ARGV[5])
local moments = call('ZRANGEBYSCORE', T .. 'y' .. ARGV[1], ARGV[2], '(' .. ARGV[3])
local rows = {}
for i = 1, #moments do
    if #rows >= 3 * most then
        return { 1, rows }
    end
    local key = T .. 'g' .. moments[i]
    if #queues == 0 then
        local all = call('HGETALL', key)
        for j = 1, #all, 2 do
            local n = #rows
            rows[n + 1], rows[n + 2], rows[n + 3] = moments[i], all[j], all[j + 1]
        end
    else
        local found = fetch('HMGET', key, queues)
        for j = 1, #queues do
            if found[j] then
                local n = #rows
                rows[n + 1], rows[n + 2], rows[n + 3] = moments[i], queues[j], found[j]
            end
        end
    end
end
return { 0, rows }
