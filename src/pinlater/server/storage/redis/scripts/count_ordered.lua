-- How many jobs with ordering keys of a queue have a place, and are there: nothing waits for the others. Changes nothing.
--   ARGV[1] name of the queue        ARGV[2] up to how many
-- Answers {how many}.
local PLACE, A_PART = 9, 1000
local queue, limit = call('HGET', T .. 'q', ARGV[1]), tonumber(ARGV[2])
local count, at = 0, 0
while queue and count < limit do
    local records = call('ZRANGE', T .. 'd' .. queue, at, at + A_PART - 1)
    if #records == 0 then
        break
    end
    for i = 1, #records do
        records[i] = T .. 'j' .. queue .. sub(records[i], -PLACE)
    end
    count = count + call('EXISTS', unpack(records))
    at = at + A_PART
end
return { math.min(count, limit) }
