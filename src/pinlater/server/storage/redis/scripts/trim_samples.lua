-- Deletes the oldest moments of a step.
--   ARGV[1] the step, 4 bytes        ARGV[2] before this time, in ms        ARGV[3] about how many samples at most
-- Answers how many queues' samples went.
local index = T .. 'y' .. ARGV[1]
local gone = 0
for _, moment in ipairs(call('ZRANGEBYSCORE', index, '-inf', '(' .. ARGV[2], 'LIMIT', 0, 100)) do
    if gone >= tonumber(ARGV[3]) then
        break
    end
    local key = T .. 'g' .. moment
    gone = gone + call('HLEN', key)
    call('UNLINK', key)
    call('ZREM', index, moment)
end
return gone
