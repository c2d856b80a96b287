-- Deletes the oldest entries of the trail.
--   ARGV[3] the id that theirs are below      ARGV[4] at most how many
-- Answers {how many}.
local again = before()
if again then
    return again
end
local old = call('ZRANGEBYLEX', T .. 'au', '-', '(' .. ARGV[3], 'LIMIT', 0, ARGV[4])
if #old > 0 then
    call('ZREMRANGEBYRANK', T .. 'au', 0, #old - 1)
end
return done({ #old })
