-- Hands out due jobs: priority first, then run-after, then id.
--   ARGV[3] now, in ms        ARGV[4] now, 8 bytes
--   ARGV[5] {names of the queues, their ids, orders, bytes of bodies and headers that all orders may hold together}
--   order {queue's place, timeout in ms, timeout in 8 bytes, calls, last priority that is handed out}; call {limit, bytes, the claim behind its times}
-- Answers {orders, records}. For each order {shares, due, expired, cut, lost, head}:
--   shares   for each call 10 bytes a job: priority, id, whether it has a past
--   due      run-after of the first job that still waits, or ''
--   expired  refs of the jobs that were met and passed over, since they are past their expiry
--   cut      2 where a job stayed because of the bytes of all orders, 1 where a call was cut by its own, or the order by the number of rows
--   lost     how many index entries without a record were met and removed
--   head     priority (a byte) and run-after of the first job that is due and still waits, or ''
-- records: each job's record, in the same order, followed by its past where it has one.
local PASSED_OVER_MAX = 500
local READ_MAX, READ_LEAST = 2000, 100
local names, ids, orders, bytes_together = unpack(cmsgpack.unpack(ARGV[5]))

-- The records of jobs that were handed out by this call before its answer was lost.
local function records_of(answers)
    local records = {}
    for place, answer in ipairs(answers) do
        local queue = ids[orders[place][1]]
        for _, share in ipairs(answer[1]) do
            for first = 1, #share, 10 do
                local ref = queue .. sub(share, first, first + 8)
                records[#records + 1] = call('GET', T .. 'j' .. ref) or ''
                if byte(share, first + 9) == 1 then
                    records[#records + 1] = call('HGET', T .. 'p', ref) or ''
                end
            end
        end
    end
    return records
end

local again = before()
if again then
    if again.err then
        return again
    end
    return { again, records_of(again) }
end
if stale(names, ids) then
    return redis.error_reply(STALE)
end
even_when_full()

local now, now8 = ARGV[3], ARGV[4]
local now_ms = tonumber(now)
local records, given, read_before = {}, 0, 0

-- One order. Kept in a table, because Lua limits the number of outer values of a function.
local function fill(order)
    local at, timeout, timeout8, calls, through = unpack(order)
    local queue = ids[at]
    local shares, expired = {}, {}
    local current, picked, bytes_left, share = 0, 0, 0, nil
    local left, cut, lost, read = 0, false, 0, 0
    local places = {}
    local cut_short = false
    local read_max = math.max(READ_LEAST, READ_MAX - read_before)
    for i = 1, #calls do
        shares[i] = {}
        left = left + calls[i][1]
    end
    local function next_call()
        if current > 0 then
            left = left - math.max(0, calls[current][1] - picked)
        end
        repeat
            current = current + 1
        until not calls[current] or calls[current][1] > 0
        picked = 0
        if calls[current] then
            share, bytes_left = shares[current], calls[current][2]
        else
            share = nil
        end
    end
    next_call()

    local plain_deadline = string.format('%.17g', now_ms + tonumber(timeout))
    local due, best = nil, nil
    local priorities = call('HGET', T .. 'pr', queue) or ''
    for p = 1, #priorities do
        local priority = sub(priorities, p, p)
        local line = queue .. priority
        local ready = T .. 'r' .. line
        local step, passed, missing, count = 16, 0, 0, 0
        local deadlines, claims, in_progress, taken = {}, {}, {}, {}
        local heads = {}
        while share and byte(priority) <= through and not cut_short and read < read_max and #expired < PASSED_OVER_MAX do
            local asked = math.min(left, step, read_max - read)
            -- Those taken are still there until the end of the line.
            local found = call('ZRANGEBYSCORE', ready, '-inf', now, 'LIMIT', passed + count, asked)
            if #found == 0 then
                break
            end
            if bytes_together <= 0 then
                cut_short = true
                break
            end
            local keys = {}
            local front = T .. 'j' .. line
            for i = 1, #found do
                keys[i] = front .. found[i]
            end
            local values = call('MGET', unpack(keys))
            local gone, size_sum = {}, 0
            for i = 1, #found do
                local record, id = values[i], found[i]
                if not record then
                    gone[#gone + 1] = id
                    places[#places + 1] = priority .. id
                    missing = missing + 1
                    call('ZREM', T .. 'e', line .. id)
                    call('HDEL', T .. 'p', line .. id)
                else
                    local size = #record
                    size_sum = size_sum + size
                    local flags = byte(record, 1)
                    local content, simple, ordered, past = size - 21, SIMPLE, 0, nil
                    local own8, deadline = timeout8, plain_deadline
                    local expires, key = nil, nil
                    if flags % 2 == 1 then
                        local bits, own, ends, text, key_size = unpack_struct('>Bi8i8I4I4', record, 22)
                        -- In an answer, headers take at most a quarter more than in their JSON.
                        content = content - 25 - key_size + math.ceil(text / 4)
                        if bits % 2 == 1 then
                            own8 = sub(record, 23, 30)
                            deadline = string.format('%.17g', now_ms + own)
                        end
                        if bits % 4 >= 2 then
                            expires = ends
                        end
                        if bits % 8 >= 4 then
                            simple = 0
                        end
                        if bits >= 8 then
                            ordered = ORDERED
                        end
                        if key_size > 0 then
                            key = sub(record, 47 + text, 46 + text + key_size)
                        end
                    end
                    local late = expires and expires < now_ms
                    if flags >= 2 and not late then
                        simple = 0
                        past = call('HGET', T .. 'p', line .. id) or ''
                    end
                    if late then
                        passed = passed + 1
                        expired[#expired + 1] = line .. id
                    elseif bytes_together <= 0 then
                        cut_short = true
                        break
                    else
                        while share and picked > 0 and content > bytes_left do
                            cut = true
                            next_call()
                        end
                        if not share then
                            break
                        end
                        local holder = calls[current][3]
                        local head
                        if flags == 0 then
                            head = heads[size]
                            if not head then
                                head = CLAIMED .. char(SIMPLE + HOLDER) .. pack('>I4', size) .. now8 .. timeout8 .. now8
                                heads[size] = head
                            end
                        else
                            head = CLAIMED .. char(simple + HOLDER + ordered) .. pack('>I4', size) .. now8 .. own8 .. now8
                            if expires then
                                call('ZREM', T .. 'e', line .. id)
                            end
                            if key and sub(call('HGET', T .. 'u' .. queue, key) or '', 3, 10) == id then
                                call('HDEL', T .. 'u' .. queue, key)
                            end
                        end
                        local ref = line .. id
                        count = count + 1
                        taken[count] = id
                        claims[2 * count - 1], claims[2 * count] = ref, head .. holder
                        deadlines[2 * count - 1], deadlines[2 * count] = deadline, ref
                        in_progress[2 * count - 1], in_progress[2 * count] = now, id
                        given = given + 1
                        records[given] = record
                        picked = picked + 1
                        if past then
                            given = given + 1
                            records[given] = past
                            share[picked] = priority .. id .. '\1'
                        else
                            share[picked] = priority .. id .. '\0'
                        end
                        left = left - 1
                        bytes_left = bytes_left - content
                        bytes_together = bytes_together - content
                        -- What counts against the limit has been taken off already.
                        if picked >= calls[current][1] then
                            next_call()
                            if not share then
                                break
                            end
                        end
                    end
                end
            end
            read = read + #found
            spread('ZREM', ready, gone)
            -- Records are read into memory before their lengths are known.
            if size_sum < 1024 * #found then
                step = math.min(step * 4, 256)
            elseif size_sum > 65536 * #found then
                step = 4
            end
        end
        if #taken > 0 then
            if passed == 0 then
                call('ZREMRANGEBYRANK', ready, 0, #taken - 1)
            else
                spread('ZREM', ready, taken)
            end
            spread('HSET', T .. 'h', claims)
            spread('ZADD', T .. 'c', deadlines)
            spread('ZADD', T .. 'i' .. line, in_progress)
            call('HINCRBY', T .. 'n' .. line, 'c', #taken)
        end
        local first = call('ZRANGE', ready, passed, passed, 'WITHSCORES')
        if first[2] and (not due or tonumber(first[2]) < tonumber(due)) then
            due = first[2]
        end
        if first[2] and not best and tonumber(first[2]) <= now_ms then
            best = priority .. first[2]
        end
        if missing > 0 then
            call('HINCRBY', T .. 'n' .. line, 'l', missing)
            lost = lost + missing
        end
    end
    if share then
        cut = cut or read >= read_max or #expired >= PASSED_OVER_MAX
    end
    read_before = read_before + read
    for i = 1, #calls do
        shares[i] = concat(shares[i])
    end
    return { shares, due or '', concat(expired), cut_short and 2 or cut and 1 or 0, lost, best or '' }, places
end

local answers = {}
for place, order in ipairs(orders) do
    local places
    answers[place], places = fill(order)
    if #places > 0 then
        lost_behind = 0
        leave_keys(ids[order[1]], places, {})
        answers[place][5] = answers[place][5] + lost_behind
    end
end
done(answers)
return { answers, records }
