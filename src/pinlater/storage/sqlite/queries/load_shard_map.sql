SELECT value FROM meta WHERE key = 'shard_map'
