-- The unique keys of a queue that jobs of lower ids hold. Changes nothing.
--   ARGV[1] name of the queue      ARGV[2] the id that theirs are below      ARGV[3] most keys to answer
-- Answers {1 if there are more or too many to look at, else 0; keys}.
local LOOKED_AT_MAX = 2000
local queue, below_id, most = call('HGET', T .. 'q', ARGV[1]), ARGV[2], tonumber(ARGV[3])
if not queue then
    return { 0, {} }
end
local held = T .. 'u' .. queue
if call('HLEN', held) > LOOKED_AT_MAX then
    return { 1, {} }
end
local rows, keys = call('HGETALL', held), {}
for at = 1, #rows, 2 do
    if sub(rows[at + 1], 3, 10) < below_id then
        keys[#keys + 1] = rows[at]
    end
end
if #keys > most then
    return { 1, {} }
end
return { 0, keys }
