-- Ids of one queue and state, newest first, of each priority. Changes nothing.
--   ARGV[1] {the index of a priority, behind the shard's part, ...}
--   ARGV[2] most rows of each
--   ARGV[3] time and ARGV[4] id (8 bytes) of the row before, or '' and ''
--   ARGV[5] only rows at or before this time, or ''        ARGV[6] only rows after this time, or ''
-- Answers {{id, time, ...}, ...}, one for each index.
local limit, after, after_id, by, behind = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local function page(key)
    local first, ends = 0, call('ZCARD', key)
    if by ~= '' then
        first = call('ZCOUNT', key, '(' .. by, '+inf')
    end
    if behind ~= '' then
        ends = call('ZCOUNT', key, '(' .. behind, '+inf')
    end
    if after ~= '' then
        local above = call('ZCOUNT', key, '(' .. after, '+inf')
        local low, high = above, above + call('ZCOUNT', key, after, after)
        while low < high do
            local middle = math.floor((low + high) / 2)
            if call('ZREVRANGE', key, middle, middle)[1] < after_id then
                high = middle
            else
                low = middle + 1
            end
        end
        first = math.max(first, low)
    end
    local last = math.min(first + limit, ends) - 1
    if limit <= 0 or last < first then
        return {}
    end
    return call('ZREVRANGE', key, first, last, 'WITHSCORES')
end
local pages = {}
for i, index in ipairs(cmsgpack.unpack(ARGV[1])) do
    pages[i] = page(T .. index)
end
return pages
