-- Frees what a deleted queue left, a bounded piece of it; the queue is forgotten when nothing of it is left.
--   ARGV[3] how many rows at most
-- Answers {how many rows, whether there is more}.
local again = before()
if again then
    return again
end
local left, freed = tonumber(ARGV[3]), 0
local queue = call('SRANDMEMBER', T .. 'z')
if not queue then
    return done({ 0, 0 })
end
local priorities = call('HGET', T .. 'pr', queue) or ''
for p = 1, #priorities do
    local line = queue .. sub(priorities, p, p)
    for _, index in ipairs({ 'r', 'i', 's', 'f' }) do
        if left <= freed then
            return done({ freed, 1 })
        end
        local ids = call('ZRANGE', T .. index .. line, 0, left - freed - 1)
        local refs, keys, bytes = {}, {}, 0
        for i = 1, #ids do
            refs[i] = line .. ids[i]
            keys[i] = T .. 'j' .. refs[i]
        end
        if index == 's' or index == 'f' then
            local claims = fetch('HMGET', T .. 'h', refs)
            for i = 1, #ids do
                if claims[i] then
                    bytes = bytes + unpack_struct('>I4', claims[i], 3)
                end
            end
            call('DECRBY', T .. 'fb', string.format('%.0f', bytes))
        end
        for first = 1, #keys, PART do
            call('DEL', unpack(keys, first, math.min(first + PART - 1, #keys)))
        end
        spread('HDEL', T .. 'h', refs)
        spread('HDEL', T .. 'p', refs)
        spread('ZREM', T .. 'c', refs)
        spread('ZREM', T .. 'e', refs)
        spread('ZREM', T .. index .. line, ids)
        freed = freed + #ids
    end
end
if left <= freed then
    return done({ freed, 1 })
end
for p = 1, #priorities do
    call('UNLINK', T .. 'n' .. queue .. sub(priorities, p, p))
end
freed = freed + call('HLEN', T .. 'u' .. queue) + call('HLEN', T .. 'k' .. queue) + call('HLEN', T .. 'dn' .. queue)
call('UNLINK', T .. 'u' .. queue, T .. 'k' .. queue, T .. 'v' .. queue, T .. 'd' .. queue, T .. 'dn' .. queue)
call('HDEL', T .. 'pr', queue)
local places = {}
for writer = 0, tonumber(call('HGET', T .. 'meta', 'writers') or '0') - 1 do
    places[#places + 1] = queue .. pack('>H', writer)
end
spread('ZREM', T .. 'a', places)
call('SREM', T .. 'z', queue)
return done({ freed, call('SCARD', T .. 'z') })
