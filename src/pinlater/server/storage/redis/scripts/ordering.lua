-- Ordering keys, behind `shared.lua` in the scripts that need them (`scripts.py`). What is ready, and what waits behind, is as in
-- `relational/ordering.py`. A place is a job's priority and id, 9 bytes.
--   d<queue>   ZSET, all scores 0: length of the key, key, number (8 bytes), place; so the jobs of a key follow one another
--   dn<queue>  HASH  place -> number (8 bytes), when the job is due by itself (8 bytes), 1 if it waits behind others or 0, key
local BEHIND_MS = 70368744177664
local NUMBER8 = 8

local function front_of(key)
    return char(#key) .. key
end

local function digits(number)
    return string.format('%.0f', number)
end

-- Gives a job the last place of its key. Returns its score among the waiting jobs.
local function enter_key(queue, place, key, due)
    local front, number = front_of(key), 1
    local last = call('ZREVRANGEBYLEX', T .. 'd' .. queue, '[' .. front .. '\255', '[' .. front, 'LIMIT', 0, 1)[1]
    if last then
        number = unpack_struct('>i8', last, #front + 1) + 1
    end
    local number8 = pack('>i8', number)
    call('ZADD', T .. 'd' .. queue, 0, front .. number8 .. place)
    call('HSET', T .. 'dn' .. queue, place, number8 .. pack('>i8', due) .. (last and '\1' or '\0') .. key)
    return last and digits(BEHIND_MS + number) or due
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
    return key, byte(about, 17) == 1
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

-- Makes the first job of a key ready, unless it is. Returns when it is due; nil if there is none to make ready.
local function let_go(queue, key)
    local front = front_of(key)
    while true do
        local first = call('ZRANGEBYLEX', T .. 'd' .. queue, '[' .. front, '[' .. front .. '\255', 'LIMIT', 0, 1)[1]
        if not first then
            return nil
        end
        local place = sub(first, #front + NUMBER8 + 1)
        local about = call('HGET', T .. 'dn' .. queue, place)
        if about and call('EXISTS', T .. 'j' .. queue .. place) == 1 then
            if byte(about, 17) == 0 then
                return nil
            end
            local due = digits(unpack_struct('>i8', about, 9))
            call('HSET', T .. 'dn' .. queue, place, sub(about, 1, 16) .. '\0' .. key)
            call('ZADD', T .. 'r' .. queue .. sub(place, 1, 1), due, sub(place, 2))
            return due
        end
        call('ZREM', T .. 'd' .. queue, first)
        call('HDEL', T .. 'dn' .. queue, place)
        drop_lost(queue, place)
    end
end

-- Jobs of a queue have ended: the next ones of their keys go. Adds the queue and when the job is due to `came` for each, and tells other
-- servers; `came` is nil in a script that no writer runs.
local function leave_keys(queue, places, came)
    local keys = {}
    for _, place in ipairs(places) do
        local key, behind = forget_place(queue, place)
        if key and not behind then
            keys[key] = true
        end
    end
    for key in pairs(keys) do
        local due = let_go(queue, key)
        if due and came then
            came[#came + 1] = queue
            came[#came + 1] = due
            made_ready(queue)
        end
    end
end

-- As `leave_keys`, of several queues.
local function leave_ended(places_by_queue, came)
    for queue, places in pairs(places_by_queue) do
        leave_keys(queue, places, came)
    end
end
