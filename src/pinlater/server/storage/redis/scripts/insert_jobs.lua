-- Stores jobs, request by request.
--   ARGV[3] now, in ms
--   ARGV[4] {names of the queues, their ids, requests, highest new id}
--   request {queue's place, plain, jobs, lines, expiries, ordered, request key or false, fingerprint, ids, max_backlog or -1, count,
--           whether some have ordering keys}
--     plain  true: `jobs` is the list key, record, ...; `lines` {{priority, list of score, id, ...}, ...}; `expiries` the list of
--            score, ref, ...; `ordered`, of jobs with ordering keys, which are not in `lines`, that of place, ordering key, when it is
--            due, ... (lists as `strings` in `shared.lua` reads them)
--            false, where jobs have unique keys: `jobs` is {{key, record, priority, score, id, expiry or false,
--            unique key or false, what to store under it, when it ends, ordering key or false}, ...}
-- Answers nothing where all were stored and nothing is to be said; else for each request 0 (stored) or a list:
--   {0, existing} stored but for those, {1, ids, existing} answered so before, {2, waiting, growth} full, {3} another request has the key,
--   {4} another shard takes the jobs with ordering keys
--   existing {place, id, priority, ...}
local again = before()
if again then
    return again
end
local now = ARGV[3]
local names, ids, requests, top = unpack(cmsgpack.unpack(ARGV[4]))
if stale(names, ids) then
    return redis.error_reply(STALE)
end
refused_when_full()

local KEPT_MS = 120000
local now_ms = tonumber(now)
local priorities = {}

local function priorities_of(queue)
    local known = priorities[queue]
    if not known then
        known = call('HGET', T .. 'pr', queue) or ''
        priorities[queue] = known
    end
    return known
end

local function waiting_in(queue)
    local known, count = priorities_of(queue), 0
    for i = 1, #known do
        count = count + call('ZCARD', T .. 'r' .. queue .. sub(known, i, i))
    end
    return count
end

local function enqueued(queue, priority, count)
    if count > 0 then
        priorities[queue] = note_priority(queue, priority, priorities_of(queue)) or priorities[queue]
        call('HINCRBY', T .. 'n' .. queue .. priority, 'e', count)
    end
end

-- Adds jobs with ordering keys to those that wait.
local function enter_ordered(queue, ordered, known)
    local entering, by_priority = ordered, {}
    if known then
        entering = {}
        for i = 1, #ordered, 3 do
            if not known[sub(ordered[i], 2)] then
                for j = i, i + 2 do
                    entering[#entering + 1] = ordered[j]
                end
            end
        end
    end
    local scores = enter_keys(queue, entering)
    for i = 1, #scores do
        local place = entering[3 * i - 2]
        local priority = sub(place, 1, 1)
        local waiting = by_priority[priority] or {}
        by_priority[priority] = waiting
        waiting[#waiting + 1] = scores[i]
        waiting[#waiting + 1] = sub(place, 2)
    end
    for priority, waiting in pairs(by_priority) do
        spread('ZADD', T .. 'r' .. queue .. priority, waiting)
        enqueued(queue, priority, #waiting / 2)
    end
end

-- Keeps of pairs (score, member) those whose member ends with an id that isn't known.
local function without(known, pairs_)
    local kept = {}
    for i = 1, #pairs_, 2 do
        if not known[sub(pairs_[i + 1], -8)] then
            kept[#kept + 1] = pairs_[i]
            kept[#kept + 1] = pairs_[i + 1]
        end
    end
    return kept
end

local function store_plain(queue, jobs, lines, expiries, ordered)
    local known = nil
    for first = 1, #jobs, PART do
        local last = math.min(first + PART - 1, #jobs)
        if call('MSETNX', unpack(jobs, first, last)) == 0 then
            for i = first, last, 2 do
                if call('SETNX', jobs[i], jobs[i + 1]) == 0 then
                    known = known or {}
                    known[sub(jobs[i], -8)] = true
                end
            end
        end
    end
    for _, line in ipairs(lines) do
        local priority, waiting = line[1], strings(line[2])
        if known then
            waiting = without(known, waiting)
        end
        spread('ZADD', T .. 'r' .. queue .. priority, waiting)
        enqueued(queue, priority, #waiting / 2)
    end
    if #ordered > 0 then
        enter_ordered(queue, ordered, known)
    end
    if known then
        expiries = without(known, expiries)
    end
    spread('ZADD', T .. 'e', expiries)
end

-- The job that has a unique key now: id and priority. A lost job has none.
local function holder_of(queue, key)
    local held = call('HGET', T .. 'u' .. queue, key)
    if not held then
        return nil
    end
    local scope, priority, id = byte(held, 1), sub(held, 2, 2), sub(held, 3, 10)
    if scope == 2 then
        if tonumber(sub(held, 11)) <= now_ms then
            return nil
        end
    elseif call('EXISTS', T .. 'j' .. queue .. priority .. id) == 0 then
        return nil
    end
    return id, priority
end

-- Which of the jobs are there already under their keys, in the shard or earlier in the same request.
local function duplicates_of(queue, jobs)
    local existing, taken = {}, {}
    for i = 1, #jobs do
        local id, key = jobs[i][5], jobs[i][7]
        if key then
            local duplicate, priority
            if taken[key] then
                duplicate, priority = taken[key][1], taken[key][2]
            else
                duplicate, priority = holder_of(queue, key)
            end
            if not duplicate or duplicate == id then
                taken[key] = { id, jobs[i][3] }
            else
                existing[#existing + 1] = i - 1
                existing[#existing + 1] = duplicate
                existing[#existing + 1] = byte(priority)
                jobs[i] = false
            end
        end
    end
    return existing
end

local function store_each(queue, jobs)
    for i = 1, #jobs do
        if jobs[i] then
            local key, record, priority, score, id, expiry, unique, held, ends, ordering = unpack(jobs[i])
            if call('SETNX', key, record) == 1 then
                if ordering then
                    score = enter_key(queue, priority .. id, ordering, score)
                end
                call('ZADD', T .. 'r' .. queue .. priority, score, id)
                enqueued(queue, priority, 1)
                if expiry then
                    call('ZADD', T .. 'e', expiry, queue .. priority .. id)
                end
                if unique then
                    call('HSET', T .. 'u' .. queue, unique, held)
                    if ends then
                        call('ZADD', T .. 't', ends, queue .. unique)
                    end
                end
            end
        end
    end
end

local answers, plainly = {}, true
for place, request in ipairs(requests) do
    local at, plain, jobs, lines, expiries, ordered, key, fingerprint, own, most, count, in_order = unpack(request)
    local queue = ids[at]
    local answer = 0
    local kept = key and call('HGET', T .. 'k' .. queue, key)
    if kept then
        local seen, print, old_ids, old_existing = unpack(cmsgpack.unpack(kept))
        if seen + KEPT_MS >= now_ms then
            answer = print == fingerprint and { 1, old_ids, old_existing } or { 3 }
        end
    end
    if answer == 0 and in_order and not rules_of(queue).takes then
        answer = { 4 }
    end
    if answer == 0 then
        local existing = plain and {} or duplicates_of(queue, jobs)
        local growth = count - #existing / 3
        local waiting = most >= 0 and growth > 0 and waiting_in(queue) or 0
        if most >= 0 and growth > 0 and waiting + growth > most then
            answer = { 2, waiting, growth }
        else
            if plain then
                store_plain(queue, strings(jobs), lines, strings(expiries), strings(ordered))
            else
                store_each(queue, jobs)
            end
            if growth > 0 then
                made_ready(queue)
            end
            if #existing > 0 then
                answer = { 0, existing }
            end
            if key then
                call('HSET', T .. 'k' .. queue, key, cmsgpack.pack({ now_ms, fingerprint, own, existing }))
                call('ZADD', T .. 'o', now, queue .. key)
            end
        end
    end
    answers[place] = answer
    plainly = plainly and answer == 0
end
if top > (call('GET', T .. 'top') or '') then
    call('SET', T .. 'top', top)
end
return done(plainly and {} or answers)
