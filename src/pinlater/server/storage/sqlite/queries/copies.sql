-- Copies of deleted jobs, for `relational/copies.py`: rows of the history, with a run in the place of the queue.

-- name: save_copies(step_s, at_ms, run, origin, data)
INSERT OR REPLACE INTO samples (step_s, at_ms, queue, origin, data) VALUES (:step_s, :at_ms, :run, :origin, :data);
