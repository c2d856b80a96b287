-- What is stored under request keys and unique keys, of queues by name. Changes nothing.
--   ARGV[1] {{index of keys, name, key}, ...}
local found = {}
for i, wanted in ipairs(cmsgpack.unpack(ARGV[1])) do
    local queue = call('HGET', T .. 'q', wanted[2])
    local kept = queue and call('HGET', T .. wanted[1] .. queue, wanted[3])
    if kept and wanted[1] == 'k' then
        found[i] = cmsgpack.unpack(kept)
    elseif kept and byte(kept, 1) ~= 2 and call('EXISTS', T .. 'j' .. queue .. sub(kept, 2, 10)) == 0 then
        found[i] = ''
    else
        found[i] = kept or ''
    end
end
return found
