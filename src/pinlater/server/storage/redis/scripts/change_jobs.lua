-- Writes what was decided on loaded jobs, if they are still as they were; and plain successes beside them, if they are plain.
--   ARGV[3] now, in ms        ARGV[4] now, 8 bytes
--   ARGV[5] {names of the queues, their ids, plain or false, refs, claims, pasts, keys, commands}
--     plain     {refs, tokens} as in `finish_jobs.lua`
--     refs      of the loaded jobs; claims and pasts: what was found of each, '' for nothing
--     keys      {queue, unique key, what was found, '' for nothing}
--     commands  {command, key without the shard's part, values}
-- Answers {0} done, {1, places} these aren't plain, {2} something has changed. Only after {0} was anything written.
local again = before()
if again then
    return again
end
local names, ids, plain, refs, claims, pasts, keys, commands = unpack(cmsgpack.unpack(ARGV[5]))
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

if not unchanged() then
    return { 2 }
end
if plain then
    local odd = finish_plain(refs_of(plain[1]), strings(plain[2]), ARGV[3], ARGV[4])
    if odd then
        return { 1, odd }
    end
end
even_when_full()
for _, command in ipairs(commands) do
    local name, key, values = unpack(command)
    if name == 'READY' then
        made_ready(key)
    elseif name == 'FREE' then
        -- A unique key, if the job still has it.
        if sub(call('HGET', T .. 'u' .. key, values[1]) or '', 3, 10) == values[2] then
            call('HDEL', T .. 'u' .. key, values[1])
        end
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
return done({ 0 })
