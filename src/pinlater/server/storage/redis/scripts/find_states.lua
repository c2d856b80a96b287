-- What merging queues needs to know of them. Changes nothing.
--   ARGV[1] {names}
-- Answers {{id, settings, when one of this name was deleted}, ...}, each '' where there is none.
local names = cmsgpack.unpack(ARGV[1])
local states = {}
for i, name in ipairs(names) do
    local queue = call('HGET', T .. 'q', name) or ''
    states[i] = { queue, queue ~= '' and call('HGET', T .. 'qc', queue) or '', call('ZSCORE', T .. 'qd', name) or '' }
end
return states
