-- Counts by queue and priority, from the sizes of the indexes. Changes nothing.
--   ARGV[1] up to when jobs count as due, in ms        ARGV[2] {names} of queues        ARGV[3] the place (from 1) to begin at
-- Answers {rows, the place to go on at, or 0}. A row: {name, priority, waiting, future, in progress, succeeded, failed,
-- totals (e c s f r l d), first run-after, the queue's id}. Ends after a hundred rows or some more.
local ROWS_MAX = 100
local names, rows = cmsgpack.unpack(ARGV[2]), {}
local ids = fetch('HMGET', T .. 'q', names)
local place = tonumber(ARGV[3])
while place <= #names and #rows < ROWS_MAX do
    local name, queue = names[place], ids[place]
    local priorities = queue and call('HGET', T .. 'pr', queue) or ''
    for p = 1, #priorities do
        local priority = sub(priorities, p, p)
        local line = queue .. priority
        local totals = call('HMGET', T .. 'n' .. line, 'e', 'c', 's', 'f', 'r', 'l', 'd')
        for t = 1, 7 do
            totals[t] = totals[t] or '0'
        end
        local first = call('ZRANGE', T .. 'r' .. line, 0, 0, 'WITHSCORES')
        rows[#rows + 1] = {
            name,
            byte(priority),
            call('ZCARD', T .. 'r' .. line),
            call('ZCOUNT', T .. 'r' .. line, '(' .. ARGV[1], '+inf'),
            call('ZCARD', T .. 'i' .. line),
            call('ZCARD', T .. 's' .. line),
            call('ZCARD', T .. 'f' .. line),
            totals,
            first[2] or '',
            queue,
        }
    end
    place = place + 1
end
return { rows, place <= #names and place or 0 }
