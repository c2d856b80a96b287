-- The shard's schema, '' for none. Changes nothing.
return call('HGET', T .. 'meta', 'schema') or ''
