-- Counts by queue and priority, from the sizes of the indexes. Changes nothing.
--   ARGV[1] up to when jobs count as due, in ms
--   ARGV[2] {names} of queues, or {} for all        ARGV[3] '1' for all
-- Answers {name, priority, waiting, future, in progress, succeeded, failed, totals (e c s f r l), first run-after, ...}.
local names, all = cmsgpack.unpack(ARGV[2]), call('HGETALL', T .. 'q')
local wanted, rows = {}, {}
for _, name in ipairs(names) do
    wanted[name] = true
end
for i = 1, #all, 2 do
    local name, queue = all[i], all[i + 1]
    if ARGV[3] == '1' or wanted[name] then
        local priorities = call('HGET', T .. 'pr', queue) or ''
        for p = 1, #priorities do
            local priority = sub(priorities, p, p)
            local line = queue .. priority
            local totals = call('HMGET', T .. 'n' .. line, 'e', 'c', 's', 'f', 'r', 'l')
            for t = 1, 6 do
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
            }
        end
    end
end
return rows
