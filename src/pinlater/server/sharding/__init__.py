"""Everything across shards, written once: the map, lanes (group commit), the choice of the shard for a request."""
