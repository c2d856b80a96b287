-- How many jobs with ordering keys of a queue have a place. Changes nothing.
--   ARGV[1] name of the queue
-- Answers {how many}.
local queue = call('HGET', T .. 'q', ARGV[1])
return { queue and call('ZCARD', T .. 'd' .. queue) or 0 }
