-- All queues: {name, id, settings, ...}. Changes nothing.
local all, rows = call('HGETALL', T .. 'q'), {}
for i = 1, #all, 2 do
    rows[#rows + 1] = all[i]
    rows[#rows + 1] = all[i + 1]
    rows[#rows + 1] = call('HGET', T .. 'qc', all[i + 1]) or ''
end
return rows
