"""Everything across shards, written once: the map, lanes (group commit), placement."""
