-- What the file keeps about itself: the shard map, the highest id, and the last probe.

-- name: current_meta(name)
SELECT value FROM meta WHERE key = :name;

-- name: save_meta(name, value)
INSERT OR REPLACE INTO meta (key, value) VALUES (:name, :value);

-- name: select_highest_id()
-- The highest id of a job in the file, and the highest one that is kept because its job may be deleted.
SELECT coalesce((SELECT max(id) FROM jobs), 0), coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'highest_id'), 0);
