-- A part of the queues. Changes nothing.
--   ARGV[1] where to go on, '0' at first        ARGV[2] about how many
-- Answers {where to go on, '0' at the end, {name, id, settings, ...}}. A queue may come twice, and one that is made meanwhile may not come.
local found = call('HSCAN', T .. 'q', ARGV[1], 'COUNT', ARGV[2])
local pairs_, ids, rows = found[2], {}, {}
for i = 2, #pairs_, 2 do
    ids[i / 2] = pairs_[i]
end
local settings = fetch('HMGET', T .. 'qc', ids)
for i = 1, #ids do
    rows[3 * i - 2], rows[3 * i - 1], rows[3 * i] = pairs_[2 * i - 1], ids[i], settings[i] or ''
end
return { found[1], rows }
