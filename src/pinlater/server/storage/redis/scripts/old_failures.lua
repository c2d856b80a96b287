-- The queues, among some, with old groups of failures or counts of old hours. Changes nothing.
--   ARGV[1] the ids of the queues      ARGV[2] groups are old that failed last before this time, in ms      ARGV[3] the first hour that is not old
-- Whether a field of a queue's failures is the newest failure of an old group, or the count of an old hour.
local function is_old_failure(field, value, before_ms, hour_before)
    local kind = sub(field, 1, 1)
    if kind == 'l' then
        return tonumber(string.match(value, '^%d+')) < before_ms
    end
    return kind == 'h' and tonumber(string.match(field, '%d+')) < hour_before
end

local before, hour_before = tonumber(ARGV[2]), tonumber(ARGV[3])
local old = {}
for _, queue in ipairs(cmsgpack.unpack(ARGV[1])) do
    local fields = call('HGETALL', T .. 'v' .. queue)
    for i = 1, #fields, 2 do
        if is_old_failure(fields[i], fields[i + 1], before, hour_before) then
            old[#old + 1] = queue
            break
        end
    end
end
return old
