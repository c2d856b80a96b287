-- What the file keeps about itself.

-- name: load_shard_map()
SELECT value FROM meta WHERE key = 'shard_map';

-- name: save_shard_map(value)
INSERT OR REPLACE INTO meta (key, value) VALUES ('shard_map', :value);

-- name: select_highest_id()
-- The highest id of a job in the file, and the highest one that is kept because its job may be deleted.
SELECT coalesce((SELECT max(id) FROM jobs), 0), coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'highest_id'), 0);

-- name: save_highest_id(value)
INSERT OR REPLACE INTO meta (key, value) VALUES ('highest_id', :value);

-- name: probe_write(value)
-- Shows that the file can be written.
INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', :value);
