-- Which jobs wait behind others of their ordering keys. Changes nothing.
--   ARGV[1] {refs}
-- Answers 1 or 0 for each.
local refs, found = cmsgpack.unpack(ARGV[1]), {}
for i, ref in ipairs(refs) do
    local about = call('HGET', T .. 'dn' .. sub(ref, 1, 4), sub(ref, 5))
    found[i] = about and byte(about, 17) == 1 and 1 or 0
end
return found
