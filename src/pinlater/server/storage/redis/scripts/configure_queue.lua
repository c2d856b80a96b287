-- Sets what is kept with a queue: one byte for paused, then the settings.
--   ARGV[3] name        ARGV[4] what is kept now, '' for nothing        ARGV[5] what is to be kept
-- Answers {1}; {0} where there is no such queue; {2} where something else is kept by now, and nothing is changed.
local again = before()
if again then
    return again
end
local queue = call('HGET', T .. 'q', ARGV[3])
if not queue then
    return done({ 0 })
end
if (call('HGET', T .. 'qc', queue) or '') ~= ARGV[4] then
    return done({ 2 })
end
call('HSET', T .. 'qc', queue, ARGV[5])
return done({ 1 })
