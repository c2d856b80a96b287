-- The ids of queues. Changes nothing.
--   ARGV[1] {names}
-- Answers {id, ...}, '' for one that isn't there.
local ids = fetch('HMGET', T .. 'q', cmsgpack.unpack(ARGV[1]))
for i = 1, #ids do
    ids[i] = ids[i] or ''
end
return ids
