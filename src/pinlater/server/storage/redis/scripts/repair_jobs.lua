-- Repairs jobs of which an eviction or an operator's DEL removed a part: creates a missing index entry or claim from the remaining
-- keys, and deletes the remaining entries of a job that is gone itself.
--   ARGV[1] {refs} of jobs to look at, or a place to walk through: 'j' all jobs, 'h' or 'p' those named there, an index of a line,
--           or 'pr': no jobs, only the queues that have some priority
--   ARGV[2] where to go on, '0' at first        ARGV[3] about how many
-- Answers {where to go on, '0' at the end, how many were repaired, how many were lost, {queue, ...} of those that were looked at,
-- bytes of the finished ones}. Idempotent, so it needs no lease.
local repaired, lost, bytes, queues, full = 0, 0, 0, {}, false
local known = {}
local PASSED_OVER_MAX, passed_over = 1000, 0

local function write(...)
    if not full then
        even_when_full()
        full = true
    end
    return call(...)
end

-- A job that has no claim and doesn't wait: which index has it, and the claim that it would have then.
local function claim_of(line, id, size)
    local since = call('ZSCORE', T .. 'i' .. line, id)
    if since then
        local ends = call('ZSCORE', T .. 'c', line .. id) or since
        local since8 = pack('>i8', since)
        return CLAIMED .. char(HOLDER) .. pack('>I4', size) .. since8 .. pack('>i8', ends - since) .. since8 .. '\0\0\0\0'
    end
    for index, state in pairs({ s = 2, f = 3 }) do
        local finished = call('ZSCORE', T .. index .. line, id)
        if finished then
            return char(state) .. '\0' .. pack('>I4', size) .. pack('>i8', finished)
        end
    end
    return nil
end

-- Whether its priority had to be put among its queue's.
local function noted(ref)
    local queue = sub(ref, 1, 4)
    if not known[queue] then
        known[queue] = call('HGET', T .. 'pr', queue) or ''
        queues[#queues + 1] = queue
    end
    local all = note_priority(queue, sub(ref, 5, 5), known[queue])
    known[queue] = all or known[queue]
    return all ~= nil
end

-- Whether it had to be put there.
local function put(index, score, member)
    if call('ZSCORE', T .. index, member) then
        return false
    end
    write('ZADD', T .. index, string.format('%.17g', score), member)
    return true
end

-- Deletes the remaining entries of a job that is gone.
local function drop(ref, line, id)
    local left = 0
    for _, index in ipairs({ 'r', 'i', 's', 'f' }) do
        left = left + write('ZREM', T .. index .. line, id)
    end
    left = left + write('ZREM', T .. 'c', ref) + write('ZREM', T .. 'e', ref)
    local claim = call('HGET', T .. 'h', ref)
    if claim and byte(claim, 1) ~= 1 then
        write('DECRBY', T .. 'fb', string.format('%.0f', unpack_struct('>I4', claim, 3)))
    end
    left = left + write('HDEL', T .. 'h', ref) + write('HDEL', T .. 'p', ref)
    leave_keys(sub(ref, 1, 4), { sub(ref, 5) })
    if left > 0 then
        lost = lost + 1
        if call('HEXISTS', T .. 'qn', sub(ref, 1, 4)) == 1 then
            write('HINCRBY', T .. 'n' .. line, 'l', 1)
        end
    end
end

-- When a job that waits is due by itself. `head`: the beginning of its record.
local function due_of(ref, head)
    local past = byte(head, 1) >= 2 and call('HGET', T .. 'p', ref)
    if past then
        return cmsgpack.unpack(past)[4]
    end
    return (unpack_struct('>i8', head, 6))
end

-- The number of a job that waits behind others of its ordering key, and the key; nil for another one, and for one whose place is not known
-- any more.
local function number_behind(ref)
    local queue, place = sub(ref, 1, 4), sub(ref, 5)
    local about = call('HGET', T .. 'dn' .. queue, place)
    if not about or state_of(about) ~= BEHIND then
        return nil
    end
    if not call('ZSCORE', T .. 'd' .. queue, front_of(sub(about, 18)) .. sub(about, 1, NUMBER8) .. place) then
        write('HDEL', T .. 'dn' .. queue, place)
        return nil
    end
    return (unpack_struct('>i8', about)), sub(about, 18)
end

-- Whether `dn` lacks the first jobs of a key. Such jobs stay in `d` when they end, so that those behind them would wait for ever. Passes over
-- them, a bounded number in each call of this script, and then lets the next ones go.
local function free_key(queue, key)
    local front, before = front_of(key), passed_over
    while true do
        local first = places_from(queue, front, 0, 1)[1]
        if not first or call('HEXISTS', T .. 'dn' .. queue, sub(first, #front + NUMBER8 + 1)) == 1 then
            break
        end
        if passed_over == PASSED_OVER_MAX then
            return true
        end
        write('ZREM', T .. 'd' .. queue, first)
        passed_over = passed_over + 1
    end
    if passed_over > before then
        let_go_of(queue, { [key] = true })
    end
    return passed_over > before
end

local function repair(ref)
    local line, id, key = sub(ref, 1, 5), sub(ref, 6), T .. 'j' .. ref
    local head = call('GETRANGE', key, 0, 45)
    if head == '' then
        drop(ref, line, id)
        return
    end
    local changed = noted(ref)
    local claim = call('HGET', T .. 'h', ref)
    local waits = not claim and call('ZSCORE', T .. 'r' .. line, id)
    if waits and tonumber(waits) > BEHIND_MS then
        local number, ordering_key = number_behind(ref)
        if not number then
            write('ZADD', T .. 'r' .. line, digits(due_of(ref, head)), id)
            changed = true
        else
            changed = free_key(sub(ref, 1, 4), ordering_key) or changed
        end
    elseif not claim and not waits then
        claim = claim_of(line, id, call('STRLEN', key))
        if claim then
            write('HSET', T .. 'h', ref, claim)
        else
            local number = byte(head, 1) % 2 == 1 and number_behind(ref)
            put('r' .. line, number and BEHIND_MS + number or due_of(ref, head), id)
        end
        changed = true
    end
    if not claim then
        if byte(head, 1) % 2 == 1 then
            local bits, _, ends = unpack_struct('>Bi8i8', head, 22)
            changed = bits % 4 >= 2 and put('e', ends, ref) or changed
        end
    elseif byte(claim, 1) == 1 then
        local since, timeout, renewed = unpack_struct('>i8i8i8', claim, 7)
        changed = put('i' .. line, since, id) or changed
        changed = put('c', renewed + timeout, ref) or changed
    else
        local size, finished = unpack_struct('>I4i8', claim, 3)
        bytes = bytes + size
        changed = put((byte(claim, 1) == 2 and 's' or 'f') .. line, finished, id) or changed
    end
    if changed then
        repaired = repaired + 1
    end
end

local place, cursor, refs = ARGV[1], '0', {}
if place == 'j' then
    local front = T .. 'j'
    local pattern = string.gsub(front, '[%*%?%[%]%^%\\]', '\\%0') .. '*'
    local found = call('SCAN', ARGV[2], 'MATCH', pattern, 'COUNT', ARGV[3])
    cursor = found[1]
    for _, key in ipairs(found[2]) do
        refs[#refs + 1] = sub(key, #front + 1)
    end
elseif place == 'h' or place == 'p' then
    local found = call('HSCAN', T .. place, ARGV[2], 'COUNT', ARGV[3])
    cursor = found[1]
    for i = 1, #found[2], 2 do
        refs[#refs + 1] = found[2][i]
    end
elseif place == 'pr' then
    local found = call('HSCAN', T .. place, ARGV[2], 'COUNT', ARGV[3])
    cursor = found[1]
    for i = 1, #found[2], 2 do
        if found[2][i] ~= '' then
            queues[#queues + 1] = found[2][i]
        end
    end
elseif #place == 6 then
    local found = call('ZSCAN', T .. place, ARGV[2], 'COUNT', ARGV[3])
    cursor = found[1]
    for i = 1, #found[2], 2 do
        refs[#refs + 1] = sub(place, 2) .. found[2][i]
    end
else
    refs = cmsgpack.unpack(place)
end
for _, ref in ipairs(refs) do
    if #ref == 13 then
        repair(ref)
    end
end
return { cursor, repaired, lost, queues, bytes }
