-- All fields of the groups of failures of some queues. Changes nothing.
--   ARGV[1] the ids of the queues
local found = {}
for _, queue in ipairs(cmsgpack.unpack(ARGV[1])) do
    found[#found + 1] = call('HGETALL', T .. 'v' .. queue)
end
return found
