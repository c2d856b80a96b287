-- Ordering keys, behind `shared.lua` in the scripts that need them (`scripts.py`). What is ready, and what waits behind, is as in
-- `relational/ordering.py`. A place is a job's priority and id, 9 bytes.
--   d<queue>   ZSET, all scores 0: length of the key, key, number (8 bytes), place; so the jobs of a key follow one another
--   dn<queue>  HASH  place -> number (8 bytes), when the job is due by itself (8 bytes), LET_GO, BEHIND or STOPPED, key
-- What the settings of a queue say about its keys is read from them: so servers need not agree about it.
local BEHIND_MS = 70368744177664
local NUMBER8 = 8
-- Where a job without a key would be; behind others; or failed finally, and no job behind it goes.
local LET_GO, BEHIND, STOPPED = '\0', '\1', '\2'

local function front_of(key)
    return char(#key) .. key
end

local function digits(number)
    return string.format('%.0f', number)
end

local rules_by_queue = {}

local function rules_of(queue)
    local rules = rules_by_queue[queue]
    if not rules then
        local settings = sub(call('HGET', T .. 'qc', queue) or '', 2)
        local kept = settings ~= '' and cjson.decode(settings) or {}
        -- `order`: at the home of the queue alone. Jobs there may wait for those on the former home.
        rules = {
            takes = kept['order'] ~= nil,
            waits = kept['order'] == 'waits',
            in_hand = kept['order'] == 'waits' and 0 or kept['max_in_hand_per_key'] or 1,
            to_back = kept['retry_place'] == 'to_back',
            stop = kept['after_failure'] == 'stop',
        }
        rules_by_queue[queue] = rules
    end
    return rules
end

local function places_from(queue, front, first, count)
    return call('ZRANGEBYLEX', T .. 'd' .. queue, '[' .. front, '[' .. front .. '\255', 'LIMIT', first, count)
end

local function state_of(about)
    return sub(about, 17, 17)
end

local function set_state(queue, place, about, state)
    call('HSET', T .. 'dn' .. queue, place, sub(about, 1, 16) .. state .. sub(about, 18))
end

-- Whether one more job of a key that has some may go at once: none of them waits or has stopped the key.
local function has_free_place(queue, front)
    local most = rules_of(queue).in_hand
    local found = most > 1 and places_from(queue, front, 0, most) or {}
    for i = 1, #found do
        local about = call('HGET', T .. 'dn' .. queue, sub(found[i], #front + NUMBER8 + 1))
        if about and state_of(about) ~= LET_GO then
            return false
        end
    end
    return #found < most and most > 1
end

-- The highest number of a key; 0 if it has no jobs.
local function last_number(queue, front)
    local last = call('ZREVRANGEBYLEX', T .. 'd' .. queue, '[' .. front .. '\255', '[' .. front, 'LIMIT', 0, 1)[1]
    return last and unpack_struct('>i8', last, #front + 1) or 0
end

-- Gives jobs the last places of their keys, in this order: a list of place, key, when it is due by itself, ... Returns their scores among
-- the waiting jobs.
local function enter_keys(queue, jobs)
    local rules = rules_of(queue)
    local several = rules.in_hand > 1
    local numbers, members, abouts, scores = {}, {}, {}, {}
    local count = 0
    for i = 1, #jobs, 3 do
        local place, key, due = jobs[i], jobs[i + 1], jobs[i + 2]
        local front = front_of(key)
        local last = numbers[key] or last_number(queue, front)
        local behind = rules.waits or (last > 0 and not (several and has_free_place(queue, front)))
        local number8 = pack('>i8', last + 1)
        numbers[key] = last + 1
        members[count + 1], members[count + 2] = 0, front .. number8 .. place
        abouts[count + 1], abouts[count + 2] = place, number8 .. pack('>i8', due) .. (behind and BEHIND or LET_GO) .. key
        scores[(i + 2) / 3] = behind and digits(BEHIND_MS + last + 1) or due
        count = count + 2
        if several or i + 3 > #jobs then -- whether the next one has a free place, the stored ones say
            spread('ZADD', T .. 'd' .. queue, members)
            spread('HSET', T .. 'dn' .. queue, abouts)
            members, abouts, count = {}, {}, 0
        end
    end
    return scores
end

local function enter_key(queue, place, key, due)
    return enter_keys(queue, { place, key, due })[1]
end

-- Deletes what is known of a job's place. Returns the key, and whether the job was behind others; nil for a job without one.
local function forget_place(queue, place)
    local about = call('HGET', T .. 'dn' .. queue, place)
    if not about then
        return nil
    end
    local key = sub(about, 18)
    call('ZREM', T .. 'd' .. queue, front_of(key) .. sub(about, 1, NUMBER8) .. place)
    call('HDEL', T .. 'dn' .. queue, place)
    return key, state_of(about) == BEHIND
end

-- A job has another priority.
local function move_place(queue, place, moved)
    local about = call('HGET', T .. 'dn' .. queue, place)
    if about then
        local front = front_of(sub(about, 18)) .. sub(about, 1, NUMBER8)
        call('ZREM', T .. 'd' .. queue, front .. place)
        call('ZADD', T .. 'd' .. queue, 0, front .. moved)
        call('HDEL', T .. 'dn' .. queue, place)
        call('HSET', T .. 'dn' .. queue, moved, about)
    end
end

-- How many jobs behind others were met without their records, and removed.
local lost_behind = 0

local function drop_lost(queue, place)
    local line, id = queue .. sub(place, 1, 1), sub(place, 2)
    call('ZREM', T .. 'e', line .. id)
    call('HDEL', T .. 'p', line .. id)
    if call('ZREM', T .. 'r' .. line, id) == 1 then
        call('HINCRBY', T .. 'n' .. line, 'l', 1)
        lost_behind = lost_behind + 1
    end
end

-- Makes the first jobs of a key ready that wait, as many as the settings say. Returns when they are due.
local function let_go(queue, key)
    local front, most, at, dues = front_of(key), rules_of(queue).in_hand, 0, {}
    while at < most do
        local first = places_from(queue, front, at, 1)[1]
        if not first then
            break
        end
        local place = sub(first, #front + NUMBER8 + 1)
        local about = call('HGET', T .. 'dn' .. queue, place)
        if about and call('EXISTS', T .. 'j' .. queue .. place) == 1 then
            if state_of(about) == STOPPED then
                break
            elseif state_of(about) == BEHIND then
                local due = digits(unpack_struct('>i8', about, 9))
                set_state(queue, place, about, LET_GO)
                call('ZADD', T .. 'r' .. queue .. sub(place, 1, 1), due, sub(place, 2))
                dues[#dues + 1] = due
            end
            at = at + 1
        else
            call('ZREM', T .. 'd' .. queue, first)
            call('HDEL', T .. 'dn' .. queue, place)
            drop_lost(queue, place)
        end
    end
    return dues
end

-- Does what `let_go` does for keys of which one job may be in hand at a time. Returns when the jobs are due, and the keys whose first jobs
-- have lost their records, for which it does nothing.
local function let_each_go(queue, keys)
    local places, records, of_key = {}, {}, {}
    for key in pairs(keys) do
        local front = front_of(key)
        local first = places_from(queue, front, 0, 1)[1]
        if first then
            local at, place = #places + 1, sub(first, #front + NUMBER8 + 1)
            places[at], records[at], of_key[at] = place, T .. 'j' .. queue .. place, key
        end
    end
    if #places == 0 then
        return {}, {}
    end
    local count = 0
    for first = 1, #records, PART do
        count = count + call('EXISTS', unpack(records, first, math.min(first + PART - 1, #records)))
    end
    if count < #records then
        return {}, of_key
    end
    local dues, abouts, waiting, left = {}, {}, {}, {}
    local found = fetch('HMGET', T .. 'dn' .. queue, places)
    for i = 1, #places do
        local about, place = found[i], places[i]
        if not about then
            left[#left + 1] = of_key[i]
        elseif state_of(about) == BEHIND then
            local due = digits(unpack_struct('>i8', about, 9))
            dues[#dues + 1] = due
            abouts[#abouts + 1] = place
            abouts[#abouts + 1] = sub(about, 1, 16) .. LET_GO .. sub(about, 18)
            local line = sub(place, 1, 1)
            waiting[line] = waiting[line] or {}
            table.insert(waiting[line], due)
            table.insert(waiting[line], sub(place, 2))
        end
    end
    spread('HSET', T .. 'dn' .. queue, abouts)
    for line, jobs in pairs(waiting) do
        spread('ZADD', T .. 'r' .. queue .. line, jobs)
    end
    return dues, left
end

-- The first jobs of keys go. Adds the queue and when the job is due to `came` for each, and tells other servers; `came` is nil in a script
-- that no writer runs.
local function let_go_of(queue, keys, came)
    local dues, left = {}, {}
    if rules_of(queue).in_hand == 1 then
        dues, left = let_each_go(queue, keys)
    else
        for key in pairs(keys) do
            left[#left + 1] = key
        end
    end
    for _, key in ipairs(left) do
        for _, due in ipairs(let_go(queue, key)) do
            dues[#dues + 1] = due
        end
    end
    if came and #dues > 0 then
        for _, due in ipairs(dues) do
            came[#came + 1] = queue
            came[#came + 1] = due
        end
        made_ready(queue)
    end
end

-- Jobs of a queue have ended: the next ones of their keys go.
local function leave_keys(queue, places, came)
    local abouts = fetch('HMGET', T .. 'dn' .. queue, places)
    local members, known, keys = {}, {}, {}
    for i = 1, #places do
        local about = abouts[i]
        if about then
            local key = sub(about, 18)
            members[#members + 1] = front_of(key) .. sub(about, 1, NUMBER8) .. places[i]
            known[#known + 1] = places[i]
            if state_of(about) ~= BEHIND then
                keys[key] = true
            end
        end
    end
    spread('ZREM', T .. 'd' .. queue, members)
    spread('HDEL', T .. 'dn' .. queue, known)
    if next(keys) then
        let_go_of(queue, keys, came)
    end
end

-- As `leave_keys`, of several queues.
local function leave_ended(places_by_queue, came)
    for queue, places in pairs(places_by_queue) do
        leave_keys(queue, places, came)
    end
end
