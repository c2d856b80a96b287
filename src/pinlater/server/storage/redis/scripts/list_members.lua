-- The servers that use the shard: {now, slot, server, ...}. Changes nothing.
local time = call('TIME')
local rows = { tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) }
for _, value in ipairs(call('HGETALL', T .. 'servers')) do
    rows[#rows + 1] = value
end
return rows
