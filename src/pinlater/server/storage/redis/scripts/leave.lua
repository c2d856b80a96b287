-- Frees a slot.
--   ARGV[1] the lease, 16 bytes        ARGV[2] slot
local known = call('HGET', T .. 'servers', ARGV[2])
if known and sub(known, 1, 16) == ARGV[1] then
    call('HDEL', T .. 'servers', ARGV[2])
end
return 1
