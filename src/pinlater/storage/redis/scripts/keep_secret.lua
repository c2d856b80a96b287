-- The shard's secret, made by whoever asks first.
--   ARGV[1] a new one
call('HSETNX', T .. 'meta', 'secret', ARGV[1])
return call('HGET', T .. 'meta', 'secret')
