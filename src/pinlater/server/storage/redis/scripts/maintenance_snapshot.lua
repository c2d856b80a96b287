-- One look that tells all sweeps whether there is anything for them. Changes nothing.
--   ARGV[1] the number of the newest change that is known, '' for all of them
-- Answers {first deadline, first expiry, first request key, first end of a unique key ('' for none), queues being freed,
-- bytes of finished jobs, what is gone, {queue and writer, ...} of later changes that made jobs ready, the number up to which these are,
-- a text that is another one after any writer's next call}.
-- What is gone: 'c' claims by deadline, 'p' the queues' priorities (both have an entry that is always there), 'q' names of queues.
local CHANGES_MAX = 2000
local answer = {}
for i, index in ipairs({ 'c', 'e', 'o', 't' }) do
    local first = call('ZRANGE', T .. index, 0, 0, 'WITHSCORES')
    answer[i] = first[1] and first[1] ~= '' and first[2] or ''
end
answer[5] = call('SCARD', T .. 'z')
answer[6] = call('GET', T .. 'fb') or '0'
answer[7] = (call('ZSCORE', T .. 'c', '') and '' or 'c')
    .. (call('HEXISTS', T .. 'pr', '') == 1 and '' or 'p')
    .. (call('HLEN', T .. 'q') == call('HLEN', T .. 'qn') and '' or 'q')
local calls = {}
for writer = 0, tonumber(call('HGET', T .. 'meta', 'writers') or '0') - 1 do
    calls[writer + 1] = call('GETRANGE', T .. 'w' .. pack('>H', writer), 0, 23)
end
answer[10] = redis.sha1hex(concat(calls, '/'))
local newest = call('GET', T .. 'an') or '0'
if ARGV[1] == '' then
    answer[8], answer[9] = {}, newest
    return answer
end
local after = tonumber(newest) < tonumber(ARGV[1]) and '-inf' or '(' .. ARGV[1]
local found, places = call('ZRANGEBYSCORE', T .. 'a', after, '+inf', 'LIMIT', 0, CHANGES_MAX, 'WITHSCORES'), {}
for i = 1, #found, 2 do
    places[#places + 1] = found[i]
end
answer[8], answer[9] = places, #places < CHANGES_MAX and newest or found[#found]
return answer
