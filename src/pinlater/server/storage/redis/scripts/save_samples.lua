-- Stores samples of the history, each in the place of one with the same key; a repeat changes nothing.
--   ARGV[1] {moment, time, queue, origin, data, ...}; a moment is step (4 bytes) and time (8 bytes)
-- Answers 1. A queue's samples at a moment: for each origin its length (2 bytes), itself, the length of its data (4), the data.
local given = cmsgpack.unpack(ARGV[1])
for i = 1, #given, 5 do
    local moment, at, queue, origin, data = given[i], given[i + 1], given[i + 2], given[i + 3], given[i + 4]
    local key = T .. 'g' .. moment
    local kept = { pack('>I2c0I4c0', #origin, origin, #data, data) }
    local before_it = call('HGET', key, queue)
    local position = 1
    while before_it and position <= #before_it do
        local start = position
        local other, data_at = unpack_struct('>I2c0', before_it, position)
        position = data_at + 4 + unpack_struct('>I4', before_it, data_at)
        if other ~= origin then
            kept[#kept + 1] = sub(before_it, start, position - 1)
        end
    end
    call('HSET', key, queue, concat(kept))
    call('ZADD', T .. 'y' .. sub(moment, 1, 4), at, moment)
end
return 1
