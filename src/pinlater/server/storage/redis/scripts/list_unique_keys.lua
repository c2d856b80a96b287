-- A page of the unique keys of a queue that jobs of lower ids hold. Changes nothing.
--   ARGV[1] name of the queue      ARGV[2] the id that theirs are below      ARGV[3] about how many keys to read
--   ARGV[4] where the page before ended, '' at first
-- Answers {keys, where the page ended, '' at the end}. A key may come twice.
-- A cursor of HSCAN is good for one process of Redis, since each has its own hash function. After a restart or a failover the pages begin
-- again.
local queue = call('HGET', T .. 'q', ARGV[1])
if not queue then
    return { {}, '' }
end
local process = string.match(call('INFO', 'server'), 'run_id:(%w+)')
local asked, cursor = string.match(ARGV[4], '^(%w+):(%d+)$')
local found = call('HSCAN', T .. 'u' .. queue, asked == process and cursor or '0', 'COUNT', ARGV[3])
local rows, keys = found[2], {}
for at = 1, #rows, 2 do
    if sub(rows[at + 1], 3, 10) < ARGV[2] then
        keys[#keys + 1] = rows[at]
    end
end
return { keys, found[1] ~= '0' and process .. ':' .. found[1] or '' }
