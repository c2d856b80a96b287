-- Stores entries of the trail, and deletes the oldest beyond a number. One that is there already stays as it is.
--   ARGV[3] how many may stay      ARGV[4] the entries, each its id, '|' and its content
-- Answers {how many there are}.
local again = before()
if again then
    return again
end
for _, entry in ipairs(strings(ARGV[4])) do
    call('ZADD', T .. 'au', 0, entry)
end
local count = call('ZCARD', T .. 'au')
local many = count - tonumber(ARGV[3])
if many > 0 then
    call('ZREMRANGEBYRANK', T .. 'au', 0, many - 1)
    count = count - many
end
return done({ count })
