-- Deletes request keys and unique keys that time has freed.
--   ARGV[3] request keys seen before this, in ms        ARGV[4] unique keys that ended by this        ARGV[5] how many at most
-- Answers {how many}.
local again = before()
if again then
    return again
end
local left = tonumber(ARGV[5])
local freed = 0
local seen = call('ZRANGEBYSCORE', T .. 'o', '-inf', '(' .. ARGV[3], 'LIMIT', 0, left)
for _, member in ipairs(seen) do
    call('HDEL', T .. 'k' .. sub(member, 1, 4), sub(member, 5))
    freed = freed + 1
end
spread('ZREM', T .. 'o', seen)
if left > freed then
    local over = call('ZRANGEBYSCORE', T .. 't', '-inf', ARGV[4], 'LIMIT', 0, left - freed)
    for _, member in ipairs(over) do
        local index, key = T .. 'u' .. sub(member, 1, 4), sub(member, 5)
        local held = call('HGET', index, key)
        if held and byte(held, 1) == 2 and tonumber(sub(held, 11)) <= tonumber(ARGV[4]) then
            call('HDEL', index, key)
            freed = freed + 1
        end
    end
    spread('ZREM', T .. 't', over)
end
return done({ freed })
