-- Keeps which shards take enqueues, and since when.
--   ARGV[3] now, in ms        ARGV[4] the map
-- Answers {since}.
local again = before()
if again then
    return again
end
local known = call('HMGET', T .. 'meta', 'map', 'map_since')
if known[1] ~= ARGV[4] then
    call('HSET', T .. 'meta', 'map', ARGV[4], 'map_since', ARGV[3])
    known[2] = ARGV[3]
end
return done({ known[2] })
