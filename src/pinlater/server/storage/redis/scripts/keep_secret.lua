-- The shard's secret, made by the first server that asks.
--   ARGV[1] a new one
call('HSETNX', T .. 'meta', 'secret', ARGV[1])
return call('HGET', T .. 'meta', 'secret')
