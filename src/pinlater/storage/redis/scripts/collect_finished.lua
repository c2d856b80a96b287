-- Deletes the oldest finished jobs of one queue, priority and state.
--   ARGV[3] queue and priority        ARGV[4] index ('s' or 'f')        ARGV[5] finished up to when        ARGV[6] how many at most
-- Answers {how many}.
local again = before()
if again then
    return again
end
local line, index = ARGV[3], T .. ARGV[4] .. ARGV[3]
local ids = call('ZRANGEBYSCORE', index, '-inf', ARGV[5], 'LIMIT', 0, ARGV[6])
if #ids > 0 then
    local refs, keys, bytes = {}, {}, 0
    for i = 1, #ids do
        refs[i] = line .. ids[i]
        keys[i] = T .. 'j' .. refs[i]
    end
    local claims = fetch('HMGET', T .. 'h', refs)
    for i = 1, #ids do
        if claims[i] then
            bytes = bytes + unpack_struct('>I4', claims[i], 3)
        end
    end
    for first = 1, #keys, PART do
        call('DEL', unpack(keys, first, math.min(first + PART - 1, #keys)))
    end
    spread('HDEL', T .. 'h', refs)
    spread('HDEL', T .. 'p', refs)
    spread('ZREM', index, ids)
    call('DECRBY', T .. 'fb', string.format('%.0f', bytes))
end
return done({ #ids })
