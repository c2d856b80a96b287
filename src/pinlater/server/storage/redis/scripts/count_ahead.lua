-- How many waiting jobs of a queue come before a place in the order of claims. Changes nothing.
--   ARGV[1] queue        ARGV[2] priority, one byte
--   ARGV[3] run-after, in ms, and ARGV[4] id (8 bytes) of the place
--   ARGV[5] up to when jobs of higher priorities count, in ms
local queue, priority, at, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local priorities = call('HGET', T .. 'pr', queue) or ''
local found = 0
for p = 1, #priorities do
    local other = sub(priorities, p, p)
    if byte(other) < byte(priority) then
        found = found + call('ZCOUNT', T .. 'r' .. queue .. other, '-inf', ARGV[5])
    end
end
local key = T .. 'r' .. queue .. priority
local low = call('ZCOUNT', key, '-inf', '(' .. at)
local high = low + call('ZCOUNT', key, at, at)
while low < high do
    local middle = math.floor((low + high) / 2)
    if call('ZRANGE', key, middle, middle)[1] < id then
        low = middle + 1
    else
        high = middle
    end
end
return found + low
