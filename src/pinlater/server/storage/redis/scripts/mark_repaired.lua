-- Says that something is whole again: puts in the entry that is always there. Idempotent, so it needs no lease.
--   ARGV[1] what: 'c' or 'p' (see `maintenance_snapshot.lua`), or 'b', the bytes of finished jobs        ARGV[2] how many bytes these are
-- Answers 1.
even_when_full()
if ARGV[1] == 'c' then
    call('ZADD', T .. 'c', '+inf', '')
elseif ARGV[1] == 'p' then
    call('HSET', T .. 'pr', '', '')
else
    call('SET', T .. 'fb', ARGV[2])
end
return 1
