-- Unique keys that time alone will free. Changes nothing.
--   ARGV[1] now, in ms
-- Answers {how many, when the last of them ends, '' for none}.
local count = call('ZCOUNT', T .. 't', '(' .. ARGV[1], '+inf')
if count == 0 then
    return { 0, '' }
end
return { count, call('ZRANGE', T .. 't', -1, -1, 'WITHSCORES')[2] }
