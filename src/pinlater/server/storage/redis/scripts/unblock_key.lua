-- Failed jobs no longer stop their ordering key: the next jobs of the key go.
--   ARGV[3] name of the queue        ARGV[4] its id        ARGV[5] the key        ARGV[6] among how many first jobs of the key these are
-- Answers {how many stopped it, {0, queue, due, ...}}, with what is ready now as `change_jobs.lua` says it.
local again = before()
if again then
    return again
end
local queue, key, unblocked, came = ARGV[4], ARGV[5], 0, { 0 }
if stale({ ARGV[3] }, { queue }) then
    return redis.error_reply(STALE)
end
local front = front_of(key)
for _, entry in ipairs(places_from(queue, front, 0, ARGV[6])) do
    local place = sub(entry, #front + NUMBER8 + 1)
    local about = call('HGET', T .. 'dn' .. queue, place)
    if about and state_of(about) == STOPPED then
        forget_place(queue, place)
        unblocked = unblocked + 1
    end
end
let_go_of(queue, { [key] = true }, came)
return done({ unblocked, came })
