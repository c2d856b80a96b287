-- Deletes the copies of the jobs that runs deleted, those of the oldest runs.
--   ARGV[1] made before this time, in ms        ARGV[2] of how many runs at most
-- Answers how many runs' copies went.
local index = T .. 'cr'
local runs = call('ZRANGEBYSCORE', index, '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, run in ipairs(runs) do
    call('UNLINK', T .. 'b' .. run, T .. 'l' .. run)
    call('ZREM', index, run)
end
return #runs
