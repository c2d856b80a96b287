-- Copies of deleted jobs, for `relational/copies.py`: rows of the history, with a bulk run in the place of the queue.

-- name: save_copies(step_s, at_ms, run, origin, data)
INSERT OR REPLACE INTO samples (step_s, at_ms, queue, origin, data) VALUES (:step_s, :at_ms, :run, :origin, :data);

-- name: find_copies(step_s, at_ms, run, after)
-- The first row of that time behind :after.
SELECT origin FROM samples
WHERE step_s = :step_s AND at_ms = :at_ms AND queue = :run AND origin > :after ORDER BY origin LIMIT 1;

-- name: next_copies(step_s, run, after_ms)
-- The first time after that one.
SELECT MIN(at_ms) FROM samples WHERE queue = :run AND step_s = :step_s AND at_ms > :after_ms;

-- name: load_copies(step_s, at_ms, run, first, last)
-- The rows from :first on and before :last.
SELECT data FROM samples
WHERE step_s = :step_s AND at_ms = :at_ms AND queue = :run AND origin >= :first AND origin < :last ORDER BY origin;

-- name: delete_copies(step_s, at_ms, run, first, last)
-- The same rows.
DELETE FROM samples WHERE step_s = :step_s AND at_ms = :at_ms AND queue = :run AND origin >= :first AND origin < :last;
