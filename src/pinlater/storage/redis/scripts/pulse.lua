-- One look that tells all sweeps whether there is anything for them. Changes nothing.
-- Answers {first deadline, first expiry, first request key, first end of a unique key ('' for none), queues being freed,
-- bytes of finished jobs, activity {queue and writer, number, ...}}.
local answer = {}
for i, index in ipairs({ 'c', 'e', 'o', 't' }) do
    answer[i] = call('ZRANGE', T .. index, 0, 0, 'WITHSCORES')[2] or ''
end
answer[5] = call('SCARD', T .. 'z')
answer[6] = call('GET', T .. 'fb') or '0'
answer[7] = call('HGETALL', T .. 'a')
return answer
