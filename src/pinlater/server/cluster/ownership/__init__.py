"""Which server owns which slices of which shards, and how that changes."""
