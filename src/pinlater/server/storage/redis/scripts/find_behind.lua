-- What is known of the places of jobs among those of their ordering keys. Changes nothing.
--   ARGV[1] {refs}
-- Answers 0 (none, or it goes), 1 (behind others) or 2 (it has stopped its key) for each, as `ordering.lua` keeps it.
local refs, found = cmsgpack.unpack(ARGV[1]), {}
for i, ref in ipairs(refs) do
    local about = call('HGET', T .. 'dn' .. sub(ref, 1, 4), sub(ref, 5))
    found[i] = about and byte(about, 17) or 0
end
return found
