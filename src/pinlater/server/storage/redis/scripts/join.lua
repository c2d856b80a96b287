-- Takes the lowest free slot. Times are Redis' own.
--   ARGV[1] the lease, 16 bytes        ARGV[2] how long a lease lasts, in ms        ARGV[3] writers of a slot
--   ARGV[4] what others are to know of the server        ARGV[5] the program's schema        ARGV[6] {slots not to be taken}
--   ARGV[7] number of slots        ARGV[8] the lowest schema that the program runs on
-- Answers {slot, highest id, schema found ('' for none)}; slot -1 where all are taken, or the schema is below the lowest or beyond the next.
-- A server: its lease, when it joined and was seen last (8 bytes each), what others are to know. Its program's schema is in `meta`, behind
-- the lease.
local lease, lasts, writers = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local schema = call('HGET', T .. 'meta', 'schema') or ''
local found = tonumber(schema) or 0
if found < tonumber(ARGV[8]) or found > ARGV[5] + 1 then
    return { -1, '', schema }
end
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local servers, taken = call('HGETALL', T .. 'servers'), {}
for i = 1, #servers, 2 do
    -- One from the future is from before the clock was set back.
    if math.abs(now - unpack_struct('>I8', servers[i + 1], 25)) < lasts then
        taken[tonumber(servers[i])] = true
    end
end
for _, slot in ipairs(cmsgpack.unpack(ARGV[6])) do
    taken[slot] = true
end
local slot = 0
while taken[slot] do
    slot = slot + 1
end
if slot >= tonumber(ARGV[7]) then
    return { -1, '', schema }
end
local now8 = pack('>I8', now)
call('HSET', T .. 'servers', slot, lease .. now8 .. now8 .. ARGV[4])
call('HSET', T .. 'meta', 'p' .. slot, lease .. ARGV[5])
if (slot + 1) * writers > tonumber(call('HGET', T .. 'meta', 'writers') or '0') then
    call('HSET', T .. 'meta', 'writers', (slot + 1) * writers)
end
for writer = slot * writers, slot * writers + writers - 1 do
    call('SET', T .. 'w' .. pack('>H', writer), lease .. string.rep('\0', 8))
end
return { slot, call('GET', T .. 'top') or '', schema }
