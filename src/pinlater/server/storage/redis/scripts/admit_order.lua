-- Takes the shard to the schema of shards with ordering keys, unless servers of programs before it use the shard.
--   ARGV[1] how long a lease lasts, in ms        ARGV[2] writers of a slot        ARGV[3] that schema
-- Answers what is known of each of these servers. One whose lease has lapsed loses its slot: it may only be suspended.
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local writers, schema = tonumber(ARGV[2]), tonumber(ARGV[3])
local servers, lapsed, older = call('HGETALL', T .. 'servers'), {}, {}
for i = 1, #servers, 2 do
    local slot, server = servers[i], servers[i + 1]
    local program = call('HGET', T .. 'meta', 'p' .. slot) or ''
    if sub(program, 1, 16) ~= sub(server, 1, 16) or tonumber(sub(program, 17)) < schema then
        if math.abs(now - unpack_struct('>I8', server, 25)) < tonumber(ARGV[1]) then
            older[#older + 1] = sub(server, 33)
        else
            lapsed[#lapsed + 1] = slot
        end
    end
end
if #older > 0 then
    return older
end
for _, slot in ipairs(lapsed) do
    for writer = slot * writers, slot * writers + writers - 1 do
        call('DEL', T .. 'w' .. pack('>H', writer))
    end
    call('HDEL', T .. 'servers', slot)
end
if tonumber(call('HGET', T .. 'meta', 'schema')) < schema then
    call('HSET', T .. 'meta', 'schema', ARGV[3])
end
return {}
