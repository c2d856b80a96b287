-- Keeps which shards take enqueues, and since when; and what is known to be settled of this map, until there is another.
--   ARGV[3] now, in ms        ARGV[4] the map        ARGV[5] what is settled, or ''
-- Answers {since, what is settled, or ''}.
local again = before()
if again then
    return again
end
local known = call('HMGET', T .. 'meta', 'map', 'map_since', 'map_settled', 'map_settled_since')
local since, settled = known[2], known[3] or ''
if known[1] ~= ARGV[4] then
    since = ARGV[3]
    call('HSET', T .. 'meta', 'map', ARGV[4], 'map_since', since)
end
if ARGV[5] ~= '' then
    settled = ARGV[5]
    call('HSET', T .. 'meta', 'map_settled', settled, 'map_settled_since', since)
elseif known[4] ~= since then
    settled = ''
end
return done({ since, settled })
