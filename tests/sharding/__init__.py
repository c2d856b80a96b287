"""Tests of what is above the stores: lanes, health, the shard map, and the service across several shards."""
