-- Entries of the trail, the newest first. Changes nothing.
--   ARGV[1] the lowest id      ARGV[2] the id that theirs are below, '' for none      ARGV[3] at most how many
-- Answers them, each its id, '|' and its content.
local newest = ARGV[2] == '' and '+' or '(' .. ARGV[2]
return call('ZREVRANGEBYLEX', T .. 'au', newest, '[' .. ARGV[1], 'LIMIT', 0, ARGV[3])
