-- Which servers own the slices of the shard's queues, as a text; none where it was never said. Changes nothing.
return call('HGET', T .. 'meta', 'owners')
