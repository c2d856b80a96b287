-- Deletes queues, at once for every caller; `free_queue.lua` frees their rows.
--   ARGV[3] {names}        ARGV[4] when, '0': nothing is remembered        ARGV[5] deletions before that are forgotten
-- What is remembered is later than all that the queue carried. One that was made after ARGV[4] stays. Answers {the newest time that any of them carried}, '0' for none.
local again = before()
if again then
    return again
end
local deleted_ms, newest = tonumber(ARGV[4]), 0
for _, name in ipairs(cmsgpack.unpack(ARGV[3])) do
    local queue = call('HGET', T .. 'q', name)
    local made, newest_here = 0, 0
    if queue then
        local settings = sub(call('HGET', T .. 'qc', queue) or '', 2)
        local kept = settings ~= '' and cjson.decode(settings) or {}
        local life = kept['life'] or { 0, 0 }
        made = life[1]
        newest_here = math.max(life[1], life[2])
        for _, version in ipairs(kept['versions'] or {}) do
            newest_here = math.max(newest_here, tonumber(string.match(version, '^%d+') or '0'))
        end
        newest = math.max(newest, newest_here)
    end
    if deleted_ms == 0 or made <= deleted_ms then
        if queue then
            call('HDEL', T .. 'q', name)
            call('HDEL', T .. 'qn', queue)
            call('HDEL', T .. 'qc', queue)
            call('SADD', T .. 'z', queue)
        end
        local remembered = math.max(deleted_ms, queue and newest_here + 1 or 0)
        if deleted_ms > 0 and remembered > tonumber(call('ZSCORE', T .. 'qd', name) or '0') then
            call('ZADD', T .. 'qd', string.format('%.0f', remembered), name)
        end
    end
end
call('ZREMRANGEBYSCORE', T .. 'qd', '-inf', '(' .. ARGV[5])
return done({ string.format('%.0f', newest) })
