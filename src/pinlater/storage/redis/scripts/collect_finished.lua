-- Deletes the oldest finished jobs of one queue, priority and state.
--   ARGV[3] queue and priority        ARGV[4] index ('s' or 'f')        ARGV[5] finished up to when        ARGV[6] how many at most
--   ARGV[7] no more once so many bytes are freed, or ''
-- Answers {how many, bytes}.
local again = before()
if again then
    return again
end
local line, index = ARGV[3], T .. ARGV[4] .. ARGV[3]
local ids = call('ZRANGEBYSCORE', index, '-inf', ARGV[5], 'LIMIT', 0, ARGV[6])
local enough = ARGV[7] ~= '' and tonumber(ARGV[7])
local bytes, count = 0, 0
if #ids > 0 then
    local refs, keys, gone = {}, {}, {}
    for i = 1, #ids do
        refs[i] = line .. ids[i]
    end
    local claims = fetch('HMGET', T .. 'h', refs)
    while count < #ids and not (enough and bytes >= enough) do
        count = count + 1
        keys[count], gone[count] = T .. 'j' .. refs[count], ids[count]
        if claims[count] then
            bytes = bytes + unpack_struct('>I4', claims[count], 3)
        end
    end
    for i = count + 1, #refs do
        refs[i] = nil
    end
    for first = 1, count, PART do
        call('DEL', unpack(keys, first, math.min(first + PART - 1, count)))
    end
    spread('HDEL', T .. 'h', refs)
    spread('HDEL', T .. 'p', refs)
    spread('ZREM', index, gone)
    call('DECRBY', T .. 'fb', string.format('%.0f', bytes))
end
return done({ count, bytes })
