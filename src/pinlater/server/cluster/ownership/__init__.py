"""Decides which server owns which slices of each shard, and moves slices when servers come or go."""
