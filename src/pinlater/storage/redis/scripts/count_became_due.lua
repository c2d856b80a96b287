-- How many waiting jobs, of all queues, became due between two times. Changes nothing.
--   ARGV[1] after when        ARGV[2] up to when, in ms
local count, all = 0, call('HVALS', T .. 'q')
for _, queue in ipairs(all) do
    local priorities = call('HGET', T .. 'pr', queue) or ''
    for p = 1, #priorities do
        count = count + call('ZCOUNT', T .. 'r' .. queue .. sub(priorities, p, p), '(' .. ARGV[1], ARGV[2])
    end
end
return count
