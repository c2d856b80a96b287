-- Writes what was decided on loaded jobs, if they are still as they were; and plain successes beside them, if they are plain.
--   ARGV[3] now, in ms        ARGV[4] now, 8 bytes
--   ARGV[5] {names of the queues, their ids, plain or false, refs, claims, pasts, keys, commands, marks, restores}
--     plain     {refs, tokens} as in `finish_jobs.lua`
--     refs      of the loaded jobs; claims and pasts: what was found of each, '' for nothing
--     keys      {queue, unique key, what was found, '' for nothing}
--     commands  {command, key without the shard's part, values}; `FAILED`, `MOVE`, `SHOWN`, `ENTER`, `BACK`, `STOP` and `END` have a
--               queue as their key
--     marks     {hash without the shard's part, field, 1 if it must be there, 0 if it must not}
--     restores  {the run whose deleted jobs come back, the field of its hash that says so}, or false
-- Answers {0, queue, due, ...} done, and for each job that is ready, as those before it under its ordering key have ended, its queue and
-- when it is due; {1, places} these aren't plain, {2} something has changed, {3} a mark is not so. Only after {0} was anything written.
-- As `domain/failures.py` has them.
local GROUPS_MAX, OTHERS = 200, '0000000000000000'
local again = before()
if again then
    return again
end
local names, ids, plain, refs, claims, pasts, keys, commands, marks, restores = unpack(cmsgpack.unpack(ARGV[5]))
if stale(names, ids) then
    return redis.error_reply(STALE)
end

local function unchanged()
    local there, found = {}, fetch('HMGET', T .. 'h', refs)
    for i = 1, #refs do
        if (found[i] or '') ~= claims[i] then
            return false
        end
        there[i] = T .. 'j' .. refs[i]
    end
    found = fetch('HMGET', T .. 'p', refs)
    for i = 1, #refs do
        if (found[i] or '') ~= pasts[i] then
            return false
        end
    end
    local count = 0
    for first = 1, #there, PART do
        count = count + call('EXISTS', unpack(there, first, math.min(first + PART - 1, #there)))
    end
    if count ~= #there then
        return false
    end
    for _, key in ipairs(keys) do
        if (call('HGET', T .. 'u' .. key[1], key[2]) or '') ~= key[3] then
            return false
        end
    end
    return true
end

for _, mark in ipairs(marks) do
    if call('HEXISTS', T .. mark[1], mark[2]) ~= mark[3] then
        return { 3 }
    end
end
if not unchanged() then
    return { 2 }
end
for _, command in ipairs(commands) do
    if command[1] == 'ENTER' and not rules_of(command[2]).takes
        and call('HEXISTS', T .. 'dn' .. command[2], command[3][1]) == 0 then
        return { 2 }
    end
end
local odd, ended
if plain then
    odd, ended = finish_plain(refs_of(plain[1]), strings(plain[2]), ARGV[3], ARGV[4])
    if odd then
        return { 1, odd }
    end
end
if restores then
    -- Redis refuses it without free memory, and then nothing is written.
    call('HSET', T .. 'b' .. restores[1], restores[2], '1')
    call('ZADD', T .. 'cr', 'NX', ARGV[3], restores[1])
else
    even_when_full()
end

-- Failed attempts of one group: {group, about it, how many, the newest, the hour, now}. Two commands, one more for a group too many.
local function count_failures(queue, values)
    local key, group, about = T .. 'v' .. queue, values[1], values[2]
    local function counts()
        return call('HMGET', key, 'a' .. group, 'g', 'n' .. group, 'h' .. values[5] .. ' ' .. group)
    end
    local found = counts()
    local groups = tonumber(found[2] or '0')
    if not found[1] and groups >= GROUPS_MAX then
        group, about = OTHERS, '[' .. values[6] .. ',"","",""]'
        found = counts()
    elseif not found[1] then
        groups = groups + 1
    end
    call('HSET', key, 'a' .. group, found[1] or about, 'g', string.format('%.0f', groups),
        'n' .. group, string.format('%.0f', (found[3] or 0) + values[3]), 'l' .. group, values[4],
        'h' .. values[5] .. ' ' .. group, string.format('%.0f', (found[4] or 0) + values[3]))
end

local answer = { 0 }
for _, command in ipairs(commands) do
    local name, key, values = unpack(command)
    if name == 'READY' then
        made_ready(key)
    elseif name == 'FAILED' then
        count_failures(key, values)
    elseif name == 'FREE' then
        -- A unique key, if the job still has it.
        if sub(call('HGET', T .. 'u' .. key, values[1]) or '', 3, 10) == values[2] then
            call('HDEL', T .. 'u' .. key, values[1])
        end
    elseif name == 'MOVE' then
        -- {ref, ref with another priority, unique key or '', 1 if it may have an ordering key, else 0}: the job's record, its place, and
        -- its unique key if it still has it.
        local ref, moved, unique, ordered = unpack(values)
        if ordered == 1 then
            move_place(key, sub(ref, 5), sub(moved, 5))
        end
        call('RENAME', T .. 'j' .. ref, T .. 'j' .. moved)
        note_priority(key, sub(moved, 5, 5), call('HGET', T .. 'pr', key) or '')
        local held = call('HGET', T .. 'u' .. key, unique) or ''
        if sub(held, 3, 10) == sub(moved, 6) then
            call('HSET', T .. 'u' .. key, unique, sub(held, 1, 1) .. sub(moved, 5, 5) .. sub(held, 3))
        end
    elseif name == 'SHOWN' then
        -- {field, what it says, what it shall say}: the newest failure of a group.
        if call('HGET', T .. 'v' .. key, values[1]) == values[2] then
            call('HSET', T .. 'v' .. key, values[1], values[3])
        end
    elseif name == 'ENTER' then
        -- {place, ordering key, when it is due}: a job that waits again after its end, or is brought back.
        -- One that stopped its key has its place still.
        local place, ordering, score = values[1], values[2], values[3]
        local about = call('HGET', T .. 'dn' .. key, place)
        if about then
            set_state(key, place, about, LET_GO)
            let_go_of(key, { [ordering] = true }, answer)
        else
            score = enter_key(key, place, ordering, score)
        end
        call('ZADD', T .. 'r' .. key .. sub(place, 1, 1), score, sub(place, 2))
    elseif name == 'BACK' then
        -- {place, when it is due}: a job whose attempt has failed, and which has others left.
        if rules_of(key).to_back then
            local place = values[1]
            local ordering = forget_place(key, place)
            if ordering then
                local score = enter_key(key, place, ordering, values[2])
                call('ZADD', T .. 'r' .. key .. sub(place, 1, 1), score, sub(place, 2))
                let_go_of(key, { [ordering] = true }, answer)
            end
        end
    elseif name == 'STOP' then
        -- {place}: a job that has failed finally.
        local about = rules_of(key).stop and call('HGET', T .. 'dn' .. key, values[1])
        if about then
            set_state(key, values[1], about, STOPPED)
        else
            leave_keys(key, values, answer)
        end
    elseif name == 'END' then
        leave_keys(key, values, answer)
    elseif name == 'DEL' then
        for i = 1, #values do
            values[i] = T .. 'j' .. values[i]
        end
        for first = 1, #values, PART do
            call('DEL', unpack(values, first, math.min(first + PART - 1, #values)))
        end
    elseif #values == 0 then
        call(name, T .. key)
    else
        spread(name, T .. key, values)
    end
end
if ended then
    leave_ended(ended, answer)
end
return done(answer)
