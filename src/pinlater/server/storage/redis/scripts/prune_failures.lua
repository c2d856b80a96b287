-- Deletes old groups of failures of a queue, and counts of old hours.
--   ARGV[3] the id of the queue      ARGV[4] groups are old that failed last before this time, in ms      ARGV[5] the first hour that is not old
--   ARGV[6] at most how many
-- Answers {how many}.
-- Whether a field of a queue's failures is the newest failure of an old group, or the count of an old hour.
local function is_old_failure(field, value, before_ms, hour_before)
    local kind = sub(field, 1, 1)
    if kind == 'l' then
        return tonumber(string.match(value, '^%d+')) < before_ms
    end
    return kind == 'h' and tonumber(string.match(field, '%d+')) < hour_before
end

-- As `domain/failures.py` has it: the one group that `g` does not count.
local OTHERS = '0000000000000000'
local again = before()
if again then
    return again
end
local key, deleted = T .. 'v' .. ARGV[3], 0
local before_ms, hour_before, limit = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local fields = call('HGETALL', key)
for i = 1, #fields, 2 do
    if deleted >= limit then
        break
    end
    if is_old_failure(fields[i], fields[i + 1], before_ms, hour_before) then
        deleted = deleted + 1
        local group = sub(fields[i], 2)
        if sub(fields[i], 1, 1) == 'l' then
            call('HDEL', key, 'a' .. group, 'n' .. group, 'l' .. group)
            if group ~= OTHERS then
                call('HINCRBY', key, 'g', -1)
            end
        else
            call('HDEL', key, fields[i])
        end
    end
end
return done({ deleted })
