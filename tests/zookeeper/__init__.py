"""Servers on shards, with a real ZooKeeper ensemble as coordinator."""
