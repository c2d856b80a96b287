-- Samples of several ranges, by time. Changes nothing.
--   ARGV[1] {{the step, 4 bytes; from this time on, in ms; before this time; {queues}, of which none means all; about how many entries}, ...}
-- Answers {{whether there may be more, {moment, queue, its samples, ...}}, ...}, one for each range. All or nothing of a moment comes.
local function samples(step, from, before, queues, most)
    local moments = call('ZRANGEBYSCORE', T .. 'y' .. step, from, '(' .. before)
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
end
local answer = {}
for i, range in ipairs(cmsgpack.unpack(ARGV[1])) do
    answer[i] = samples(unpack(range))
end
return answer
