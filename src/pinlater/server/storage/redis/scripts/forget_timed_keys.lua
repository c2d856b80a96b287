-- Deletes unique keys that time alone would free, before their time: for an operator that removes the shard.
--   ARGV[1] how many at most
-- Answers how many.
local members = call('ZRANGE', T .. 't', 0, tonumber(ARGV[1]) - 1)
for _, member in ipairs(members) do
    local index, key = T .. 'u' .. sub(member, 1, 4), sub(member, 5)
    local held = call('HGET', index, key)
    if held and byte(held, 1) == 2 then
        call('HDEL', index, key)
    end
end
spread('ZREM', T .. 't', members)
return #members
