INSERT OR REPLACE INTO meta (key, value) VALUES ('shard_map', ?)
