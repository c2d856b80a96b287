-- Sets what is kept with a queue.
--   ARGV[3] name        ARGV[4] settings or ''        ARGV[5] paused: '0', '1' or ''
-- Answers {1}, or {0} where there is no such queue. Kept: one byte for paused, then the settings.
local again = before()
if again then
    return again
end
local queue = call('HGET', T .. 'q', ARGV[3])
if not queue then
    return done({ 0 })
end
local kept = call('HGET', T .. 'qc', queue) or '0{}'
local paused = ARGV[5] ~= '' and ARGV[5] or sub(kept, 1, 1)
local settings = ARGV[4] ~= '' and ARGV[4] or sub(kept, 2)
call('HSET', T .. 'qc', queue, paused .. settings)
return done({ 1 })
