-- Counts by queue and priority, from the sizes of the indexes. Changes nothing.
--   ARGV[1] up to when jobs count as due, in ms        ARGV[2] above which those behind others are        ARGV[3] {names} of queues
-- Answers {rows, how many queues it got through}. A row: {name, priority, waiting, future, in progress, succeeded, failed,
-- totals (e c s f r l d), first run-after, the queue's id, waiting behind others}. Ends before the commands are more than it may call.
local COMMANDS_MAX, A_ROW = 2400, 8
local names, rows = cmsgpack.unpack(ARGV[3]), {}
local ids = fetch('HMGET', T .. 'q', names)
local asked = {}
for i = 1, #ids do
    asked[i] = ids[i] or ''
end
local known = fetch('HMGET', T .. 'pr', asked)
local commands, place = 0, 1
while place <= #names do
    local name, queue, priorities = names[place], ids[place], known[place] or ''
    if commands > 0 and commands + A_ROW * #priorities > COMMANDS_MAX then
        break
    end
    for p = 1, #priorities do
        local priority = sub(priorities, p, p)
        local line = queue .. priority
        local totals = call('HMGET', T .. 'n' .. line, 'e', 'c', 's', 'f', 'r', 'l', 'd')
        for t = 1, 7 do
            totals[t] = totals[t] or '0'
        end
        local waiting, future, first, behind = call('ZCARD', T .. 'r' .. line), 0, '', 0
        commands = commands + A_ROW - 3
        if waiting > 0 then
            future = call('ZCOUNT', T .. 'r' .. line, '(' .. ARGV[1], '+inf')
            first = call('ZRANGE', T .. 'r' .. line, 0, 0, 'WITHSCORES')[2]
            commands = commands + 2
            if future > 0 then
                behind = call('ZCOUNT', T .. 'r' .. line, ARGV[2], '+inf')
                commands = commands + 1
            end
        end
        rows[#rows + 1] = {
            name,
            byte(priority),
            waiting,
            future,
            call('ZCARD', T .. 'i' .. line),
            call('ZCARD', T .. 's' .. line),
            call('ZCARD', T .. 'f' .. line),
            totals,
            first,
            queue,
            behind,
        }
    end
    place = place + 1
end
return { rows, place - 1 }
