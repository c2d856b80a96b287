-- Entries of the trail, for `relational/trail.py`.

-- name: insert_trail(name, content)
-- One that is there already is a repeat after a lost answer.
INSERT OR IGNORE INTO audit (name, content) VALUES :rows;

-- name: trail_beyond(records_max, limit)
-- The oldest rows, of which there can be too many: numbers ascend, and some may be missing.
SELECT id FROM audit WHERE id <= (SELECT max(id) FROM audit) - :records_max ORDER BY id LIMIT :limit;

-- name: trail_before(before, limit)
-- The oldest by time.
SELECT id FROM audit WHERE name < :before ORDER BY name LIMIT :limit;

-- name: list_trail(since, before, limit)
-- The newest first.
SELECT name, content FROM audit WHERE name >= :since AND name < :before ORDER BY name DESC LIMIT :limit;
