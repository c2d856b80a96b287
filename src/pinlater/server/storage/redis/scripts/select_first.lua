-- Members of an index up to a time, the first ones first. Changes nothing.
--   ARGV[1] the index, behind the shard's part        ARGV[2] up to when        ARGV[3] how many
--   ARGV[4] behind how many of them; 0 if there is none
return call('ZRANGEBYSCORE', T .. ARGV[1], '-inf', ARGV[2], 'LIMIT', ARGV[4] or 0, ARGV[3])
