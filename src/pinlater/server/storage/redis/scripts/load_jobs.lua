-- Reads jobs. Changes nothing.
--   ARGV[1] {refs, whole, keys, names, ids}: `whole` 1: with bodies; keys {queue, unique key}; queues that the caller goes by, with their ids
-- Answers {jobs, keys}: jobs {record (without the body, unless whole), its size, claim, past, ...}, '' for what isn't there, and a
-- claim of one zero byte for a job that has none and doesn't wait either (see `repair_jobs.lua`); keys: what is stored under each.
local refs, whole, keys, names, ids = unpack(cmsgpack.unpack(ARGV[1]))
if stale(names, ids) then
    return redis.error_reply(STALE)
end
local claims, pasts = fetch('HMGET', T .. 'h', refs), fetch('HMGET', T .. 'p', refs)
local jobs, held = {}, {}
for i = 1, #refs do
    local key = T .. 'j' .. refs[i]
    local record, size
    if whole == 1 then
        record = call('GET', key) or ''
        size = #record
    else
        record = call('GETRANGE', key, 0, 1023)
        size = #record
        if size == 1024 then
            size = call('STRLEN', key)
        end
        if size > 0 then
            local last = 21
            if byte(record, 1) % 2 == 1 then
                local text, key_size = unpack_struct('>I4I4', record, 39)
                last = 46 + text + key_size
            end
            if last > #record then
                record = call('GETRANGE', key, 0, last - 1)
            else
                record = sub(record, 1, last)
            end
        end
    end
    local at = 4 * i
    if size > 0 and not claims[i] and not call('ZSCORE', T .. 'r' .. sub(refs[i], 1, 5), sub(refs[i], 6)) then
        claims[i] = '\0'
    end
    jobs[at - 3], jobs[at - 2], jobs[at - 1], jobs[at] = record, size, claims[i] or '', pasts[i] or ''
end
for i = 1, #keys do
    held[i] = call('HGET', T .. 'u' .. keys[i][1], keys[i][2]) or ''
end
return { jobs, held }
