-- Refs of the jobs that a claim would meet first. Changes nothing.
--   ARGV[1] queue        ARGV[2] now, in ms        ARGV[3] how many
local queue, left = ARGV[1], tonumber(ARGV[3])
local refs = {}
local priorities = call('HGET', T .. 'pr', queue) or ''
for p = 1, #priorities do
    if left <= 0 then
        break
    end
    local line = queue .. sub(priorities, p, p)
    local found = call('ZRANGEBYSCORE', T .. 'r' .. line, '-inf', ARGV[2], 'LIMIT', 0, left)
    for i = 1, #found do
        refs[#refs + 1] = line .. found[i]
    end
    left = left - #found
end
return refs
