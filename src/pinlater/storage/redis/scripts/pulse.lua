-- One look that tells all sweeps whether there is anything for them. Changes nothing.
--   ARGV[1] the number of the newest change that is known, '' for all of them
-- Answers {first deadline, first expiry, first request key, first end of a unique key ('' for none), queues being freed,
-- bytes of finished jobs, {queue and writer, ...} of later changes that made jobs ready, the number up to which these are}.
local CHANGES_MAX = 2000
local answer = {}
for i, index in ipairs({ 'c', 'e', 'o', 't' }) do
    answer[i] = call('ZRANGE', T .. index, 0, 0, 'WITHSCORES')[2] or ''
end
answer[5] = call('SCARD', T .. 'z')
answer[6] = call('GET', T .. 'fb') or '0'
local newest = call('GET', T .. 'an') or '0'
if ARGV[1] == '' then
    answer[7], answer[8] = {}, newest
    return answer
end
local after = tonumber(newest) < tonumber(ARGV[1]) and '-inf' or '(' .. ARGV[1]
local found, places = call('ZRANGEBYSCORE', T .. 'a', after, '+inf', 'LIMIT', 0, CHANGES_MAX, 'WITHSCORES'), {}
for i = 1, #found, 2 do
    places[#places + 1] = found[i]
end
answer[7], answer[8] = places, #places < CHANGES_MAX and newest or found[#found]
return answer
