-- Members of an index up to a time, the first ones first. Changes nothing.
--   ARGV[1] the index, behind the shard's part        ARGV[2] up to when        ARGV[3] how many
return call('ZRANGEBYSCORE', T .. ARGV[1], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])
