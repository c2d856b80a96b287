-- The copies of deleted jobs that one call made. Changes nothing.
--   ARGV[1] the run        ARGV[2] behind which place, '' for the first
-- Answers {place, the copies, '' if they are gone}; {} if there are no more.
local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local places = call('ZRANGEBYLEX', T .. 'l' .. ARGV[1], from, '+', 'LIMIT', 0, 1)
if #places == 0 then
    return {}
end
return { places[1], call('HGET', T .. 'b' .. ARGV[1], places[1]) or '' }
