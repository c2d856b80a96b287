-- Deletes the oldest finished jobs of some lines and states, line after line.
--   ARGV[3] {{queue and priority, index ('s' or 'f'), finished up to when}, ...}        ARGV[4] how many jobs at most
--   ARGV[5] stop once this many bytes are freed, or ''
-- Answers for each {how many, bytes, when the oldest that is left was finished, '' for none}; then {0, queue, due, ...} with what is ready
-- now, as `change_jobs.lua` says it: one of the jobs may have stopped its key.
local again = before()
if again then
    return again
end
local left, enough = tonumber(ARGV[4]), ARGV[5] ~= '' and tonumber(ARGV[5])
local freed, answers, came = 0, {}, { 0 }

local function collect(line, index, up_to)
    local ids = left > 0 and call('ZRANGEBYSCORE', index, '-inf', up_to, 'LIMIT', 0, left) or {}
    local refs, keys, gone, bytes, count = {}, {}, {}, 0, 0
    for i = 1, #ids do
        refs[i] = line .. ids[i]
    end
    local claims = fetch('HMGET', T .. 'h', refs)
    while count < #ids and not (enough and freed + bytes >= enough) do
        count = count + 1
        keys[count], gone[count] = T .. 'j' .. refs[count], ids[count]
        if claims[count] then
            bytes = bytes + unpack_struct('>I4', claims[count], 3)
        end
    end
    for i = count + 1, #refs do
        refs[i] = nil
    end
    if count > 0 then
        for first = 1, count, PART do
            call('DEL', unpack(keys, first, math.min(first + PART - 1, count)))
        end
        spread('HDEL', T .. 'h', refs)
        spread('HDEL', T .. 'p', refs)
        spread('ZREM', index, gone)
        local queue = sub(line, 1, 4)
        if index == T .. 'f' .. line and call('EXISTS', T .. 'dn' .. queue) == 1 then
            local places = {}
            for i = 1, count do
                places[i] = sub(line, 5) .. gone[i]
            end
            leave_keys(queue, places, came)
        end
        call('DECRBY', T .. 'fb', string.format('%.0f', bytes))
    end
    left = left - count
    freed = freed + bytes
    return { count, bytes, call('ZRANGE', index, 0, 0, 'WITHSCORES')[2] or '' }
end

for place, order in ipairs(cmsgpack.unpack(ARGV[3])) do
    answers[place] = collect(order[1], T .. order[2] .. order[1], order[3])
end
answers[#answers + 1] = came
return done(answers)
