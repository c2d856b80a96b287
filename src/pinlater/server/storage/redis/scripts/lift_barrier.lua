-- The first jobs of the next ordering keys of a queue go.
--   ARGV[3] name of the queue        ARGV[4] its id        ARGV[5] the key behind which to begin, '' for the first        ARGV[6] how many keys
-- Answers {the last of these keys, '' if there are no more, {0, queue, due, ...}}, with what is ready now as `change_jobs.lua` says it.
local again = before()
if again then
    return again
end
local queue, last, limit, came = ARGV[4], ARGV[5], tonumber(ARGV[6]), { 0 }
if stale({ ARGV[3] }, { queue }) then
    return redis.error_reply(STALE)
end
local keys, count = {}, 0
while count < limit do
    local from = last == '' and '-' or '(' .. front_of(last) .. '\255'
    local entry = call('ZRANGEBYLEX', T .. 'd' .. queue, from, '+', 'LIMIT', 0, 1)[1]
    if not entry then
        last = ''
        break
    end
    last = sub(entry, 2, 1 + byte(entry, 1))
    keys[last] = true
    count = count + 1
end
let_go_of(queue, keys, came)
return done({ last, came })
