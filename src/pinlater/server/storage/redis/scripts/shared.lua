-- In front of every script. What the keys and the packed records are: `keys.py` and `packing.py`.
--
-- KEYS[1] is what all keys of the shard begin with, its hash tag in it. Scripts that change something are given
--   ARGV[1] the writer, 2 bytes
--   ARGV[2] the lease of the writer's slot (16 bytes) and the number of this call (8 bytes)
-- A call that was carried out before gives its answer again and changes nothing. Errors: SLOTLOST, the slot is another server's;
-- OVERTAKEN, a later call of this writer was carried out; STALEQUEUE, a queue's id is not what the caller thinks.
-- Redis takes nothing back where a script fails in the middle: whatever can be refused is looked at before the first write.
local T = KEYS[1]
local call = redis.call
local sub, byte, char, concat = string.sub, string.byte, string.char, table.concat
local pack, unpack_struct = struct.pack, struct.unpack

-- How many values `unpack` takes from a table at once; a multiple of two.
local PART = 4000

local function spread(command, key, values)
    local count = #values
    for first = 1, count, PART do
        call(command, key, unpack(values, first, math.min(first + PART - 1, count)))
    end
end

-- A list of strings: how many, then each behind its length, in four bytes each.
local SOME = 100
local function strings(packed)
    local found = {}
    local left, at = unpack_struct('>I4', packed)
    local count = 0
    local form = left >= SOME and '>' .. string.rep('I4c0', SOME)
    while left >= SOME do
        local values = { unpack_struct(form, packed, at) }
        for i = 1, SOME do
            found[count + i] = values[i]
        end
        at = values[SOME + 1]
        count = count + SOME
        left = left - SOME
    end
    for i = count + 1, count + left do
        found[i], at = unpack_struct('>I4c0', packed, at)
    end
    return found
end

-- A list of refs, which are all of one length.
local function refs_of(packed)
    local found, count = {}, 0
    local size = #packed
    local form = size >= 13 * SOME and string.rep('c13', SOME)
    for first = 1, size, 13 * SOME do
        if first + 13 * SOME - 1 <= size then
            local values = { unpack_struct(form, packed, first) }
            for i = 1, SOME do
                found[count + i] = values[i]
            end
            count = count + SOME
        else
            for at = first, size, 13 do
                count = count + 1
                found[count] = sub(packed, at, at + 12)
            end
        end
    end
    return found
end

-- The answers of a command on many fields (HMGET) or keys (MGET, key nil).
local function fetch(command, key, fields)
    local count = #fields
    if count == 0 then
        return {}
    end
    if count <= PART then
        if key then
            return call(command, key, unpack(fields))
        end
        return call(command, unpack(fields))
    end
    local found = {}
    for first = 1, count, PART do
        local last = math.min(first + PART - 1, count)
        local part
        if key then
            part = call(command, key, unpack(fields, first, last))
        else
            part = call(command, unpack(fields, first, last))
        end
        for i = 1, #part do
            found[first + i - 1] = part[i]
        end
    end
    return found
end

-- The answer that there is already, or an error; nil where the call is to be carried out.
local function before()
    local stored = call('GET', T .. 'w' .. ARGV[1])
    if not stored or sub(stored, 1, 16) ~= sub(ARGV[2], 1, 16) then
        return redis.error_reply('SLOTLOST the slot was taken over')
    end
    local newest, number = sub(stored, 17, 24), sub(ARGV[2], 17, 24)
    if newest == number then
        return cmsgpack.unpack(sub(stored, 25))
    end
    if newest > number then
        return redis.error_reply('OVERTAKEN a later call was carried out')
    end
    return nil
end

-- Keeps the answer for a call that comes again.
local function done(answer)
    call('SET', T .. 'w' .. ARGV[1], ARGV[2] .. cmsgpack.pack(answer))
    return answer
end

-- Whether any queue's id is another than the caller thinks; '' for none.
local function stale(names, ids)
    local found = fetch('HMGET', T .. 'q', names)
    for i = 1, #names do
        if (found[i] or '') ~= ids[i] then
            return true
        end
    end
    return false
end

local STALE = 'STALEQUEUE a queue is another now'

-- A write that is never refused for want of memory; once there was one, the others of the script aren't either.
local function even_when_full()
    call('DEL', T .. 'x')
end

-- A write that changes nothing, and that Redis refuses where there is no memory left, if it is the first one of the script.
local function refused_when_full()
    call('APPEND', T .. 'w' .. ARGV[1], '')
end

-- Puts a priority among those that a queue is known to have, and returns all of them; nil where it was there.
local function note_priority(queue, priority, known)
    if string.find(known, priority, 1, true) then
        return nil
    end
    local all = { priority }
    for i = 1, #known do
        all[#all + 1] = sub(known, i, i)
    end
    table.sort(all)
    known = concat(all)
    even_when_full()
    call('HSET', T .. 'pr', queue, known)
    return known
end

-- Which queues other servers may have made jobs ready in.
local function made_ready(queue)
    call('ZADD', T .. 'a', call('INCR', T .. 'an'), queue .. ARGV[1])
end

-- A claim (packing.py): state, flags, size, claimed, timeout, renewed, lengths of token and descriptor, token, descriptor, source.
local CLAIMED, SUCCEEDED = char(1), char(2)
local SIMPLE, HOLDER, ORDERED = 1, 2, 4

local function is_simple(flags)
    return flags % 2 == 1
end

-- Ends claims with a plain success, if all are so; else changes nothing. A token is '' for any, else a byte and the token.
-- Returns the positions of those that aren't plain, or nil; and the places of the jobs with ordering keys by queue, for `leave_ended`.
local function finish_plain(refs, tokens, now, now8)
    local lines, line = {}, nil
    local held = fetch('HMGET', T .. 'h', refs)
    local odd, fields, bytes, ended = nil, {}, 0, {}
    for i = 1, #refs do
        local claim = held[i]
        local plain = false
        if claim and byte(claim, 1) == 1 and is_simple(byte(claim, 2)) then
            local t1, t2, d1, d2 = byte(claim, 31, 34)
            local token_end = 34 + t1 * 256 + t2
            local token = tokens[i]
            if token == '' or sub(claim, 35, token_end) == sub(token, 2) then
                plain = true
                local ref = refs[i]
                local name = sub(ref, 1, 5)
                if not line or line.name ~= name then
                    line = lines[name]
                    if not line then
                        line = { name = name }
                        lines[name] = line
                    end
                end
                line[#line + 1] = sub(ref, 6)
                if byte(claim, 2) >= ORDERED then
                    local queue = sub(ref, 1, 4)
                    ended[queue] = ended[queue] or {}
                    table.insert(ended[queue], sub(ref, 5))
                end
                local b1, b2, b3, b4 = byte(claim, 3, 6)
                bytes = bytes + ((b1 * 256 + b2) * 256 + b3) * 256 + b4
                fields[2 * i - 1] = refs[i]
                fields[2 * i] = SUCCEEDED
                    .. sub(claim, 2, 6)
                    .. now8
                    .. sub(claim, token_end + 1, token_end + d1 * 256 + d2)
            end
        end
        if not plain then
            odd = odd or {}
            odd[#odd + 1] = i
        end
    end
    if odd then
        return odd
    end
    even_when_full()
    spread('HSET', T .. 'h', fields)
    spread('ZREM', T .. 'c', refs)
    for name, ids in pairs(lines) do
        local finished = {}
        for i = 1, #ids do
            finished[2 * i - 1] = now
            finished[2 * i] = ids[i]
        end
        spread('ZREM', T .. 'i' .. name, ids)
        spread('ZADD', T .. 's' .. name, finished)
        call('HINCRBY', T .. 'n' .. name, 's', #ids)
    end
    call('INCRBY', T .. 'fb', string.format('%.0f', bytes))
    return nil, ended
end
