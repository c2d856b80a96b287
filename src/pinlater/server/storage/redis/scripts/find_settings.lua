-- What is kept with a queue. Changes nothing.
--   ARGV[1] name
-- Answers {settings}, '' where nothing is kept; {} where there is no such queue.
local queue = call('HGET', T .. 'q', ARGV[1])
if not queue then
    return {}
end
return { call('HGET', T .. 'qc', queue) or '' }
