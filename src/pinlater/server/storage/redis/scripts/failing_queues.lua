-- Those of some queues that have groups of failures. Changes nothing.
--   ARGV[1] the ids of the queues
local found = {}
for _, queue in ipairs(cmsgpack.unpack(ARGV[1])) do
    if call('EXISTS', T .. 'v' .. queue) == 1 then
        found[#found + 1] = queue
    end
end
return found
