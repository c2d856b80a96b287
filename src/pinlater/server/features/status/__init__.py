"""The servers and the shards, as operators and clients see them."""
