-- Deletes groups of failures of a queue, and counts of hours. A group that has failed again meanwhile stays.
--   ARGV[3] the id of the queue      ARGV[4] {names of groups, the newest of each as it was read, fields of hours}
-- Answers {how many}.

-- As `domain/failures.py` has it: the one group that `g` does not count.
local OTHERS = '0000000000000000'
local again = before()
if again then
    return again
end
local key, deleted = T .. 'v' .. ARGV[3], 0
local groups, newest, hours = unpack(cmsgpack.unpack(ARGV[4]))
for i, group in ipairs(groups) do
    if call('HGET', key, 'l' .. group) == newest[i] then
        call('HDEL', key, 'a' .. group, 'n' .. group, 'l' .. group)
        deleted = deleted + 1
        if group ~= OTHERS then
            call('HINCRBY', key, 'g', -1)
        end
    end
end
for _, hour in ipairs(hours) do
    deleted = deleted + call('HDEL', key, hour)
end
return done({ deleted })
