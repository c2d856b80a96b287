-- Copies of deleted jobs, for `relational/copies.py`: rows of the history, with a run in the place of the queue.

-- name: find_copies(step_s, at_ms, run, after)
-- The first row of that time behind :after.
SELECT origin FROM samples FORCE INDEX (PRIMARY)
WHERE step_s = :step_s AND at_ms = :at_ms AND queue = _binary:run AND origin > _binary:after ORDER BY origin LIMIT 1;

-- name: next_copies(step_s, run, after_ms)
-- The first time after that one.
SELECT MIN(at_ms) FROM samples FORCE INDEX (samples_by_queue) WHERE queue = _binary:run AND step_s = :step_s AND at_ms > :after_ms;

-- name: load_copies(step_s, at_ms, run, first, last)
-- The rows from :first on and before :last, locked: of two servers one brings the jobs back.
SELECT data FROM samples FORCE INDEX (PRIMARY)
WHERE step_s = :step_s AND at_ms = :at_ms AND queue = _binary:run AND origin >= _binary:first AND origin < _binary:last ORDER BY origin FOR UPDATE;

-- name: delete_copies(step_s, at_ms, run, first, last)
-- The same rows.
DELETE FROM samples WHERE step_s = :step_s AND at_ms = :at_ms AND queue = _binary:run AND origin >= _binary:first AND origin < _binary:last;
