"""Everything across shards, written once: the map, lanes (group commit), which shard a request goes to."""
