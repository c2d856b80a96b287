-- What comes before a job under its ordering key. Changes nothing.
--   ARGV[1] queue        ARGV[2] place: priority and id, 9 bytes
-- Answers how many jobs, and the place of the first; 0 and '' if nothing does.
local queue, place = ARGV[1], ARGV[2]
local about = call('HGET', T .. 'dn' .. queue, place)
if not about then
    return { 0, '' }
end
local key = sub(about, 18)
local front = char(#key) .. key
local from, to = '[' .. front, '(' .. front .. sub(about, 1, 8) .. place
local first = call('ZRANGEBYLEX', T .. 'd' .. queue, from, to, 'LIMIT', 0, 1)[1]
if not first then
    return { 0, '' }
end
return { call('ZLEXCOUNT', T .. 'd' .. queue, from, to), sub(first, #front + 9) }
