-- Says that the shard has a schema now, if it has the one before.
--   ARGV[1] the schema
-- Answers 1, or 0 where another server was first. The first one puts in the entries that are always there (see `maintenance_snapshot.lua`), unless
-- only the schema had got lost.
local before = tonumber(call('HGET', T .. 'meta', 'schema') or '0')
if before >= tonumber(ARGV[1]) then
    return 0
end
call('HSET', T .. 'meta', 'schema', ARGV[1])
if before == 0 and call('EXISTS', T .. 'q', T .. 'qn', T .. 'pr') == 0 then
    call('ZADD', T .. 'c', '+inf', '')
    call('HSET', T .. 'pr', '', '')
end
return 1
