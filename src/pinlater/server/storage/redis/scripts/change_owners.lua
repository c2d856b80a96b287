-- Changes which servers own the slices of the shard's queues, unless another server has changed it meanwhile.
--   ARGV[1] what is stored as far as the caller knows        ARGV[2] the new text        ARGV[3] what counts as stored where nothing is
-- Answers 1, or 0 where it has.
if (call('HGET', T .. 'meta', 'owners') or ARGV[3]) ~= ARGV[1] then
    return 0
end
even_when_full()
call('HSET', T .. 'meta', 'owners', ARGV[2])
return 1
